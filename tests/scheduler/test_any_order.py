"""The machine under random but possible events: a shell of dice and no processes.

After every event the invariants hold, the effects are such as a shell can perform, and the
snapshot and the journal give the same machine again. At the end every run must finish. What fails
is shrunk, and told as the list of its events.

An event of a new kind needs a rule that lets it happen (`self.perform(self.run.handle(event))`),
an effect a case in `perform_one`; what must hold then stands in `holdfast.testing.invariants`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import msgpack
from hypothesis import HealthCheck, note, settings
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
    AskScheduler,
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
MOST = 8
KINDS = (StopTrial, PauseTrial, UnpauseTrial)
# Failure settings beside max_failures, one set for each run.
FAILURES: list[dict[str, Any]] = [
    {},
    {"retry_wait_s": 1.0},
    {"retry_wait_s": 1.0, "max_lost_workers": 1, "max_preemptions": 1, "reset_on_progress": True},
    {"max_out_of_memory": 0, "max_errored_trials": 1},
]
# What a restore may make of the experiment.
CHANGES: list[dict[str, Any]] = [
    {"num_samples": 20},
    {"stop": {"training_iteration": 4}, "stop_number": 1},
    {"time_budget_s": 60.0},
]
# The best of them is 3; some are none.
SCORES = [0.0, 1.0, 2.0, 3.0, float("nan"), float("-inf"), None, "high"]
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
    given: int | None = None  # the checkpoint that it begins with


class AnyOrder(RuleBasedStateMachine):
    """The shell: performs effects on workers that the rules move."""

    def __init__(self) -> None:
        super().__init__()
        self.workers: dict[str, Worker] = {}
        self.finished = 0
        self.skipped: set[str] = set()
        self.uncommitted: list[tuple[str, int]] = []
        self.waits: list[Wait] = []
        self.scores: dict[tuple[str, int], Any] = {}
        self.kept: tuple[bytes, int] | None = None
        self.story: list[str] = []

    @initialize(
        most=st.sampled_from([None, None, 1, 2]),
        reuse=st.booleans(),
        has_stopper=st.booleans(),
        depends=st.booleans(),
        failures=st.sampled_from([0, 1, -1]),
        fail_fast=st.booleans(),
        budgets=st.sampled_from(FAILURES),
        keep=st.sampled_from([None, 1, 2]),
        order=st.sampled_from(["max", "min"]),
        budget_s=st.sampled_from([None, None, 30.0]),
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
        order: str,
        budget_s: float | None,
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
            checkpoint=CheckpointConfig(
                num_to_keep=keep, checkpoint_score_attribute="score", checkpoint_score_order=order
            ),
            stop={"training_iteration": 6},
            time_budget_s=budget_s,
            tell=self.story.append,
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
                self.discard(effect)
            case Suggest():
                assert self.run.machine.asking
            case Warn() if "without a checkpoint" in effect.text:
                assert any(not trial.checkpoints for trial in self.run.machine.trials.values())
            case Warn():
                assert "score" in effect.text
                assert not all(type(score) is float for score in self.scores.values())
            case Finish():
                assert not self.workers, "finished, with workers left"
                self.finished += 1
            case AskScheduler():
                raise AssertionError("nobody asks")
            case _:
                assert_never(effect)

    def launch(self, effect: Launch) -> None:
        if effect.reuse is not None:
            worker = self.workers.pop(effect.reuse)
            assert worker.state == "idle"
        assert effect.trial_id not in self.workers, "a second worker for one trial"
        newest = self.run.trial(effect.trial_id).newest_checkpoint
        assert effect.checkpoint == newest
        given = newest.index if newest else None
        self.workers[effect.trial_id] = Worker(effect.trial_id, effect.attempt, given=given)

    def discard(self, effect: Discard) -> None:
        """What goes is named no more, nobody begins with it, and it is no better than what stays,
        the newest apart."""
        trial, index = self.run.trial(effect.trial_id), effect.checkpoint.index
        assert index not in [known.index for known in trial.checkpoints]
        worker = self.workers.get(effect.trial_id)
        assert worker is None or worker.state != "starting" or worker.given != index
        committed = [known.index for known in trial.checkpoints if known.committed]
        assert index < committed[-1], "the newest goes"
        worst = min((self.rank(effect.trial_id, at) for at in committed[:-1]), default=None)
        assert worst is None or self.rank(effect.trial_id, index) <= worst

    def rank(self, trial_id: str, index: int) -> float:
        score = self.scores[trial_id, index]
        is_min = self.run.machine.spec.checkpoint.checkpoint_score_order == "min"
        if not isinstance(score, float) or not math.isfinite(score):
            return -math.inf
        return -score if is_min else score

    # -- what may happen ------------------------------------------------------------------------

    def those(self, *states: str) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.state in states]

    def pick(self, data: st.DataObject, *states: str) -> Worker:
        return data.draw(st.sampled_from(self.those(*states)))

    @precondition(lambda self: self.run.machine.asking and len(self.run.machine.trials) < MOST)
    @rule(resources=st.sampled_from(REQUESTS))
    def search_answers(self, resources: dict[str, float]) -> None:
        static = self.run.machine.spec.resources is not None
        self.perform(self.run.suggest() if static else self.run.suggest(resources))

    @precondition(lambda self: self.run.machine.asking and len(self.run.machine.trials) > 2)
    @rule()
    def search_ends(self) -> None:
        self.perform(self.run.handle(SearchEnded()))

    @rule(data=st.data(), steps=st.integers(1, 10))
    def life_goes_on(self, data: st.DataObject, steps: int) -> None:
        """What happens mostly, so that the rest befalls runs that have come far."""
        for _ in range(steps):
            if self.uncommitted and data.draw(st.sampled_from([True, False])):
                self.keeper_commits(data)
            elif self.those("starting", "running", "reporting", "leaving"):
                self.worker_goes_on(data)

    def worker_goes_on(self, data: st.DataObject) -> None:
        worker = self.pick(data, "starting", "running", "reporting", "leaving")
        match worker.state:
            case "starting":
                self.starts(worker)
            case "reporting":
                self.is_answered(worker, "go on")
            case "running" if not worker.told:
                score: Any = data.draw(st.sampled_from(SCORES))
                self.reports(worker, [], score, checkpoint=True)
            case "running":
                self.returns(worker)
            case _:
                self.leaves(worker)

    @precondition(lambda self: self.those("starting"))
    @rule(data=st.data())
    def worker_is_up(self, data: st.DataObject) -> None:
        self.starts(self.pick(data, "starting"))

    def starts(self, worker: Worker) -> None:
        worker.state = "running"
        self.perform(self.run.start(worker.trial_id))

    @precondition(lambda self: self.those("running"))
    @rule(data=st.data(), orders=ORDERS, checkpoint=st.booleans(), score=st.sampled_from(SCORES))
    def worker_reports(
        self, data: st.DataObject, orders: list[tuple[int, int]], checkpoint: bool, score: Any
    ) -> None:
        self.reports(self.pick(data, "running"), orders, score, checkpoint=checkpoint)

    def reports(
        self, worker: Worker, orders: list[tuple[int, int]], score: Any, *, checkpoint: bool
    ) -> None:
        worker.state = "reporting"
        metrics: dict[str, Any] = {"orders": [list(order) for order in orders]}
        metrics |= {} if score is None else {"score": score}
        if checkpoint:
            self.note_score(worker.trial_id, metrics)
        self.perform(
            self.run.report(
                worker.trial_id, metrics, checkpoint=checkpoint, attempt=worker.attempt
            )
        )

    def note_score(self, trial_id: str, row: dict[str, Any]) -> None:
        """Of the checkpoint that comes now."""
        index = self.run.trial(trial_id).next_checkpoint
        self.scores[trial_id, index] = row.get("score")

    @precondition(lambda self: any(worker.told for worker in self.those("running")))
    @rule(data=st.data())
    def worker_saves(self, data: st.DataObject) -> None:
        told = [worker for worker in self.those("running") if worker.told]
        worker = data.draw(st.sampled_from(told))
        self.note_score(worker.trial_id, dict(self.run.trial(worker.trial_id).row or {}))
        self.perform(self.run.save(worker.trial_id, attempt=worker.attempt))

    @precondition(lambda self: self.those("running", "reporting"))
    @rule(data=st.data())
    def function_returns(self, data: st.DataObject) -> None:
        worker = self.pick(data, "running", "reporting")
        if worker.state == "running" or worker.told:
            self.returns(worker)

    def returns(self, worker: Worker) -> None:
        worker.state = "idle" if self.run.machine.spec.reuse_actors else "leaving"
        worker.asked = False
        self.perform(self.run.returns(worker.trial_id, attempt=worker.attempt))

    @precondition(lambda self: self.those("starting", "running"))
    @rule(data=st.data(), kind=st.sampled_from(["user", "user", "preempted"]))
    def function_raises(self, data: st.DataObject, kind: str) -> None:
        worker = self.pick(data, "starting", "running")
        worker.state = "leaving"
        self.perform(self.run.fails(worker.trial_id, kind=kind, attempt=worker.attempt))

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def wait_ends(self, data: st.DataObject) -> None:
        self.waited(self.waits.pop(data.draw(st.integers(0, len(self.waits) - 1))))

    def waited(self, wait: Wait) -> None:
        ended = WaitEnded(trial_id=wait.trial_id, attempt=wait.attempt)
        self.perform(self.run.handle(ended))

    @precondition(lambda self: self.those("starting"))
    @rule(data=st.data())
    def fetch_of_the_checkpoint_fails(self, data: st.DataObject) -> None:
        worker = self.pick(data, "starting")
        newest = self.run.trial(worker.trial_id).newest_checkpoint
        if newest:
            worker.state = "leaving"
            lost = CheckpointLost(trial_id=worker.trial_id, index=newest.index, reason="gone")
            self.perform(self.run.handle(lost))
            self.perform(
                self.run.fails(worker.trial_id, kind="checkpoint", attempt=worker.attempt)
            )

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), kind=st.sampled_from(["lost", "memory", "hang"]))
    def worker_exits(self, data: st.DataObject, kind: str) -> None:
        self.leaves(data.draw(st.sampled_from(list(self.workers.values()))), kind)

    def leaves(self, worker: Worker, kind: str = "lost") -> None:
        del self.workers[worker.trial_id]
        self.perform(self.run.exits(worker.trial_id, kind=kind, attempt=worker.attempt))

    @precondition(lambda self: any(worker.asked for worker in self.those("reporting")))
    @rule(data=st.data(), what=st.sampled_from(["go on", "go on", "stop", "all", "error"]))
    def stopper_answers(self, data: st.DataObject, what: str) -> None:
        waiting = [worker for worker in self.those("reporting") if worker.asked]
        self.is_answered(data.draw(st.sampled_from(waiting)), what)

    def is_answered(self, worker: Worker, what: str) -> None:
        if not worker.asked:
            return  # it was told to end, and hears of nothing else
        worker.asked = False
        failed = failure("stopper") if what == "error" else None
        self.perform(
            self.run.answer(
                worker.trial_id, stop=what == "stop", stop_all=what == "all", failed=failed
            )
        )

    @precondition(lambda self: self.uncommitted)
    @rule(data=st.data())
    def some_checkpoint_is_committed(self, data: st.DataObject) -> None:
        self.keeper_commits(data)

    def keeper_commits(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.uncommitted) - 1))
        self.perform(self.run.commit(*self.uncommitted.pop(at)))

    @precondition(lambda self: self.uncommitted)
    @rule(data=st.data())
    def keeper_finds_it_gone(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.uncommitted) - 1))
        trial_id, index = self.uncommitted.pop(at)
        worker = self.workers.get(trial_id)
        if worker is None or worker.given != index:  # else the fetch for it finds it out
            lost = CheckpointLost(trial_id=trial_id, index=index, reason="gone")
            self.perform(self.run.handle(lost))

    @rule(
        reason=st.sampled_from(["budget", "interrupt", "abort", "preempted"]),
        chance=st.sampled_from(range(6)),
    )
    def end_is_ordered(self, reason: str, chance: int) -> None:
        if chance == 0 and not self.finished:
            self.perform(self.run.handle(EndOrdered(reason=reason)))

    @rule(
        chance=st.sampled_from(range(6)),
        errored=st.sampled_from(["skip", "resume", "restart"]),
        unfinished=st.sampled_from(["resume", "resume", "skip", "restart"]),
        finished=st.sampled_from(["skip", "skip", "resume", "restart"]),
        lost=st.integers(0, 2),
        changed=st.sampled_from([None, None, *CHANGES]),
    )
    def controller_dies_and_is_restored(
        self,
        chance: int,
        errored: str,
        unfinished: str,
        finished: str,
        lost: int,
        changed: dict[str, Any] | None,
    ) -> None:
        if chance:
            return
        self.run.crash()
        self.compare_with_snapshot()
        self.workers.clear()
        self.uncommitted.clear()
        self.waits.clear()
        self.finished = 0
        for trial in list(self.run.machine.trials.values()):
            for known in trial.checkpoints[len(trial.checkpoints) - lost :]:
                gone = CheckpointLost(trial_id=trial.trial_id, index=known.index, reason="gone")
                self.perform(self.run.handle(gone, after_s=0))
        if unfinished == "skip":
            self.skipped = set(self.run.machine.trials)
        effects = self.run.resume(
            errored=errored, unfinished=unfinished, finished=finished, changed=changed
        )
        self.perform(effects)

    @rule()
    def machine_is_read_back_from_a_snapshot(self) -> None:
        written = msgpack.packb(snapshot(self.run.machine))
        machine = from_snapshot(msgpack.unpackb(written, strict_map_key=False))
        machine.policy = Obeying()
        check(machine)
        assert msgpack.packb(snapshot(machine)) == written
        self.run.machine = machine

    @rule()
    def snapshot_is_written(self) -> None:
        written = msgpack.packb(snapshot(self.run.machine))
        self.kept = (written, len(self.run.events))

    def compare_with_snapshot(self) -> None:
        """The newest snapshot and what came after it are as good as the whole journal."""
        if self.kept is None:
            return
        written, known = self.kept
        machine = from_snapshot(msgpack.unpackb(written, strict_map_key=False))
        machine.policy = Obeying()
        for event, now, answers in self.run.events[known:]:
            machine.replay(event, now=now, answers=answers)
        assert msgpack.packb(snapshot(machine)) == msgpack.packb(snapshot(self.run.machine))

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
        try:
            if hasattr(self, "run"):
                self.end_well()
        finally:
            note("\n".join(["What happened:", *self.story]))

    def end_well(self) -> None:
        for _ in range(200):
            if self.run.machine.finished:
                break
            self.bring_on()
        assert self.run.machine.finished, "the run does not come to its end"
        self.run.crash()
        self.compare_with_snapshot()

    def bring_on(self) -> None:
        busy = [worker for worker in self.workers.values() if worker.state != "idle"]
        if not busy and self.waits:
            self.waited(self.waits.pop())
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
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
