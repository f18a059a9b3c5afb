"""The machine under random but possible events: a shell of dice and no processes.

After every event the invariants hold, the effects are such as a shell can perform, and the
snapshot and the journal give the same machine again. At the end every run must finish.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from holdfast.scheduler.codec import from_snapshot, snapshot
from holdfast.scheduler.effects import (
    AskStopper,
    Commit,
    Discard,
    Effect,
    Finish,
    Halt,
    Launch,
    Preempt,
    Release,
    Reply,
    Suggest,
    Wait,
    Warn,
)
from holdfast.scheduler.events import CheckpointLost, EndOrdered, SearchEnded, WaitEnded
from holdfast.scheduler.policy import (
    Decision,
    Observation,
    PauseTrial,
    StopTrial,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    View,
)
from holdfast.scheduler.verdict import Verdict
from holdfast.testing.invariants import check
from holdfast.testing.rehearsal import Rehearsal, failure
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.trial import Status

CAPACITY = {"CPU": 3, "GPU": 1}
REQUESTS: list[dict[str, float]] = [
    {"CPU": 1},
    {"CPU": 1},
    {"CPU": 2},
    {"CPU": 0.5, "GPU": 1 / 3},
    {"GPU": 1},
]
KINDS = (StopTrial, PauseTrial, UnpauseTrial)
# Failure settings beside max_failures, one set for each run.
FAILURES: list[dict[str, Any]] = [
    {},
    {"retry_wait_s": 1.0},
    {"retry_wait_s": 1.0, "max_lost_workers": 1, "max_preemptions": 1, "reset_on_progress": True},
    {"max_out_of_memory": 0, "max_errored_trials": 1},
]
# What a report may order: kind of decision and number of the trial.
ORDERS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=2)


class Obeying(TrialScheduler):
    """Decides what the row of the report says, so that a replay decides the same."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if not isinstance(event, TrialReported):
            return ()
        known = [f"t{number}" for _, number in event.row["orders"]]
        return [
            KINDS[kind](trial_id=trial_id)
            for (kind, _), trial_id in zip(event.row["orders"], known, strict=True)
            if trial_id in view.trials
        ]


@dataclass
class Worker:
    """`state` is one of starting, running, reporting (waits for an answer), leaving, idle."""

    trial_id: str
    attempt: int
    state: str = "starting"
    asked: bool = False
    told: bool = False


class AnyOrder(RuleBasedStateMachine):
    """The shell: performs effects on workers that the rules move."""

    def __init__(self) -> None:
        super().__init__()
        self.workers: dict[str, Worker] = {}
        self.finished = 0
        self.skipped: set[str] = set()
        self.uncommitted: list[tuple[str, int]] = []
        self.waits: list[Wait] = []

    @initialize(
        most=st.sampled_from([None, None, 1, 2]),
        reuse=st.booleans(),
        has_stopper=st.booleans(),
        depends=st.booleans(),
        failures=st.sampled_from([0, 1, -1]),
        fail_fast=st.booleans(),
        budgets=st.sampled_from(FAILURES),
        keep=st.sampled_from([None, 1, 2]),
    )
    def begin(
        self,
        most: int | None,
        reuse: bool,
        has_stopper: bool,
        depends: bool,
        failures: int,
        fail_fast: bool,
        budgets: dict[str, Any],
        keep: int | None,
    ) -> None:
        spec: dict[str, Any] = {} if not depends else {"resources": None}
        self.run = Rehearsal(
            capacity=CAPACITY,
            policy=Obeying(),
            max_concurrent=most,
            reuse_actors=reuse,
            has_stopper=has_stopper,
            failure=FailureConfig(
                max_failures=0 if fail_fast else failures, fail_fast=fail_fast, **budgets
            ),
            checkpoint=CheckpointConfig(num_to_keep=keep, checkpoint_score_attribute="score"),
            stop={"training_iteration": 4},
            **spec,
        )
        self.perform(self.run.began)

    # -- effects --------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.perform_one(effect)

    def perform_one(self, effect: Effect) -> None:
        over = self.finished and not isinstance(effect, (Commit, Discard))
        assert not over, f"{effect} after the end"
        match effect:
            case Launch():
                self.launch(effect)
            case Reply():
                worker = self.workers[effect.trial_id]
                assert (worker.attempt, worker.state) == (effect.attempt, "reporting")
                worker.state = "running"
                worker.told |= effect.verdict is not Verdict.CONTINUE
            case AskStopper():
                self.workers[effect.trial_id].asked = True
            case Wait():
                assert effect.seconds > 0
                self.waits.append(effect)
            case Preempt():
                worker = self.workers[effect.trial_id]
                assert (worker.attempt, worker.told) == (effect.attempt, False)
            case Halt():
                assert self.workers[effect.trial_id].attempt == effect.attempt
                self.workers[effect.trial_id].told = True
            case Release():
                worker = self.workers[effect.trial_id]
                assert worker.state == "idle"
                worker.state = "leaving"
            case Commit():
                self.uncommitted.append((effect.trial_id, effect.checkpoint.index))
            case Discard():
                trial = self.run.trial(effect.trial_id)
                assert effect.checkpoint.index not in [c.index for c in trial.checkpoints]
            case Suggest():
                assert self.run.machine.asking
            case Warn():
                raise AssertionError("there is nothing to warn of here")
            case Finish():
                assert not self.workers, "finished, with workers left"
                self.finished += 1

    def launch(self, effect: Launch) -> None:
        if effect.reuse is not None:
            worker = self.workers.pop(effect.reuse)
            assert worker.state == "idle"
        assert effect.trial_id not in self.workers, "a second worker for one trial"
        newest = self.run.trial(effect.trial_id).newest_checkpoint
        assert effect.checkpoint == newest
        self.workers[effect.trial_id] = Worker(effect.trial_id, effect.attempt)

    # -- what may happen ------------------------------------------------------------------------

    def pick(self, data: st.DataObject, *states: str) -> Worker | None:
        there = [worker for worker in self.workers.values() if worker.state in states]
        return data.draw(st.sampled_from(there)) if there else None

    @precondition(lambda self: self.run.machine.asking)
    @rule(resources=st.sampled_from(REQUESTS))
    def search_answers(self, resources: dict[str, float]) -> None:
        static = self.run.machine.spec.resources is not None
        self.perform(self.run.suggest() if static else self.run.suggest(resources))

    @precondition(lambda self: self.run.machine.asking and len(self.run.machine.trials) > 2)
    @rule()
    def search_ends(self) -> None:
        self.perform(self.run.handle(SearchEnded()))

    @rule(data=st.data())
    def worker_is_up(self, data: st.DataObject) -> None:
        if worker := self.pick(data, "starting"):
            worker.state = "running"
            self.perform(self.run.start(worker.trial_id))

    @rule(data=st.data(), orders=ORDERS, checkpoint=st.booleans(), score=st.integers(0, 3))
    def worker_reports(
        self,
        data: st.DataObject,
        orders: list[tuple[int, int]],
        checkpoint: bool,
        score: int,
    ) -> None:
        if worker := self.pick(data, "running"):
            worker.state = "reporting"
            metrics = {"orders": [list(order) for order in orders], "score": score}
            self.perform(
                self.run.report(
                    worker.trial_id, metrics, checkpoint=checkpoint, attempt=worker.attempt
                )
            )

    @rule(data=st.data())
    def worker_saves(self, data: st.DataObject) -> None:
        worker = self.pick(data, "running")
        if worker and worker.told:
            self.perform(self.run.save(worker.trial_id, attempt=worker.attempt))

    @rule(data=st.data())
    def function_returns(self, data: st.DataObject) -> None:
        worker = self.pick(data, "running", "reporting")
        if worker and (worker.state == "running" or worker.told):
            worker.state = "idle" if self.run.machine.spec.reuse_actors else "leaving"
            worker.asked = False
            self.perform(self.run.returns(worker.trial_id, attempt=worker.attempt))

    @rule(data=st.data(), kind=st.sampled_from(["user", "user", "preempted"]))
    def function_raises(self, data: st.DataObject, kind: str) -> None:
        worker = self.pick(data, "starting", "running")
        if worker:
            worker.state = "leaving"
            self.perform(self.run.fails(worker.trial_id, kind=kind, attempt=worker.attempt))

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def wait_ends(self, data: st.DataObject) -> None:
        wait = self.waits.pop(data.draw(st.integers(0, len(self.waits) - 1)))
        self.perform(self.run.handle(WaitEnded(trial_id=wait.trial_id, attempt=wait.attempt)))

    @rule(data=st.data())
    def fetch_of_the_checkpoint_fails(self, data: st.DataObject) -> None:
        worker = self.pick(data, "starting")
        newest = self.run.trial(worker.trial_id).newest_checkpoint if worker else None
        if worker and newest:
            worker.state = "leaving"
            lost = CheckpointLost(trial_id=worker.trial_id, index=newest.index, reason="gone")
            self.perform(self.run.handle(lost))
            self.perform(
                self.run.fails(worker.trial_id, kind="checkpoint", attempt=worker.attempt)
            )

    @rule(data=st.data(), kind=st.sampled_from(["lost", "memory", "hang"]))
    def worker_exits(self, data: st.DataObject, kind: str) -> None:
        worker = self.pick(data, "starting", "running", "reporting", "leaving", "idle")
        if worker:
            del self.workers[worker.trial_id]
            self.perform(self.run.exits(worker.trial_id, kind=kind, attempt=worker.attempt))

    @rule(data=st.data())
    def worker_leaves(self, data: st.DataObject) -> None:
        if worker := self.pick(data, "leaving"):
            del self.workers[worker.trial_id]
            self.perform(self.run.exits(worker.trial_id, attempt=worker.attempt))

    @rule(data=st.data(), what=st.sampled_from(["go on", "go on", "stop", "all", "error"]))
    def stopper_answers(self, data: st.DataObject, what: str) -> None:
        waiting = [w for w in self.workers.values() if w.asked and w.state == "reporting"]
        if waiting:
            worker = data.draw(st.sampled_from(waiting))
            worker.asked = False
            failed = failure("stopper") if what == "error" else None
            self.perform(
                self.run.answer(
                    worker.trial_id, stop=what == "stop", stop_all=what == "all", failed=failed
                )
            )

    @precondition(lambda self: self.uncommitted)
    @rule(data=st.data())
    def keeper_commits(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.uncommitted) - 1))
        self.perform(self.run.commit(*self.uncommitted.pop(at)))

    @rule(
        reason=st.sampled_from(["budget", "interrupt", "abort", "preempted"]),
        chance=st.integers(0, 5),
    )
    def end_is_ordered(self, reason: str, chance: int) -> None:
        if chance == 0 and not self.finished:
            self.perform(self.run.handle(EndOrdered(reason=reason)))

    @rule(
        chance=st.integers(0, 3),
        errored=st.sampled_from(["skip", "resume", "restart"]),
        unfinished=st.sampled_from(["resume", "resume", "skip", "restart"]),
        finished=st.sampled_from(["skip", "skip", "resume", "restart"]),
    )
    def controller_dies_and_is_restored(
        self, chance: int, errored: str, unfinished: str, finished: str
    ) -> None:
        if chance:
            return
        self.run.crash()
        self.workers.clear()
        self.uncommitted.clear()
        self.waits.clear()
        self.finished = 0
        if unfinished == "skip":
            self.skipped = set(self.run.machine.trials)
        effects = self.run.resume(errored=errored, unfinished=unfinished, finished=finished)
        self.perform(effects)

    @rule()
    def machine_is_read_back_from_a_snapshot(self) -> None:
        written = msgpack.packb(snapshot(self.run.machine))
        machine = from_snapshot(msgpack.unpackb(written, strict_map_key=False), Obeying())
        check(machine)
        assert msgpack.packb(snapshot(machine)) == written
        self.run.machine = machine

    # -- what must hold -------------------------------------------------------------------------

    @invariant()
    def the_machine_knows_which_workers_there_are(self) -> None:
        machine = self.run.machine
        idle = {w.trial_id for w in self.workers.values() if w.state == "idle"}
        assert machine.allotment.idle.keys() == idle
        assert machine.allotment.holds.keys() == self.workers.keys() - idle

    @invariant()
    def no_trial_is_forgotten(self) -> None:
        machine = self.run.machine
        if machine.finished or machine.ending:
            return
        for trial in machine.trials.values():
            if trial.status is Status.PENDING and trial.trial_id not in self.skipped:
                waits = (
                    trial.trial_id in machine.allotment.queue
                    or trial.trial_id in machine.allotment.delayed
                    or trial.trial_id in machine.allotment.holds
                )
                assert waits, trial.story()

    def teardown(self) -> None:
        """Whatever happened, the run can be brought to its end, and the journal tells it all."""
        if not hasattr(self, "run"):
            return
        for _ in range(200):
            if self.run.machine.finished:
                break
            self.bring_on()
        assert self.run.machine.finished, "the run does not come to its end"
        self.run.crash()

    def bring_on(self) -> None:
        busy = [worker for worker in self.workers.values() if worker.state != "idle"]
        if not busy and self.waits:
            wait = self.waits.pop()
            waited = WaitEnded(trial_id=wait.trial_id, attempt=wait.attempt)
            self.perform(self.run.handle(waited))
            return
        if not busy:
            self.perform(self.run.handle(SearchEnded()))
            return
        worker = busy[0]
        if worker.state == "starting":
            self.perform(self.run.start(worker.trial_id))
        if worker.state != "leaving":
            worker.state = "idle" if self.run.machine.spec.reuse_actors else "leaving"
            self.perform(self.run.returns(worker.trial_id, attempt=worker.attempt))
            return
        del self.workers[worker.trial_id]
        self.perform(self.run.exits(worker.trial_id, attempt=worker.attempt))


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
