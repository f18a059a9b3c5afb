"""The walk: a run begins, and anything possible happens to it until it must come to its end."""

from random import Random
from typing import Any

import msgpack
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import (
    ConfigRefused,
    EndOrdered,
    EndReason,
    ResumeRequested,
    SearchEnded,
)
from holdfast.scheduler.machine import from_snapshot
from holdfast.scheduler.placement import WaitsFor
from holdfast.testing.invariants import check
from holdfast.testing.rehearsal import facts
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.resources import NodeKind
from holdfast.trial.trial import Status
from tests.scheduler.any_order.ordered import Ordered
from tests.scheduler.any_order.orders import (
    BUNDLES,
    CAPACITY,
    MOST,
    ORDERS_OF_PEOPLE,
    REQUESTS,
    Obeying,
    order_of_a_person,
)
from tests.scheduler.any_order.workers import Workers

# On a cluster, nodes have what the machine has otherwise.
OFFER = (NodeKind(name="k", resources=CAPACITY),)
# Failure settings in addition to max_failures, one set for each run.
FAILURES: list[dict[str, Any]] = [
    {},
    {"retry_wait_s": 1.0},
    {"retry_wait_s": 1.0, "max_lost_workers": 1, "max_preemptions": 1, "reset_on_progress": True},
    {"max_out_of_memory": 0, "max_errored_trials": 1},
]
# The changes that a restore may make.
CHANGES: list[dict[str, Any]] = [
    {"num_samples": 20},
    {"stop": {"training_iteration": 4}, "stop_number": 1},
    {"time_budget_s": 60.0},
]


class AnyOrder(Workers):
    """A run in the shell: how it begins, what people and a crash do to it, what must hold."""

    @initialize(
        most=st.sampled_from([None, None, 1, 2]),
        reuse=st.booleans(),
        has_stopper=st.booleans(),
        depends=st.booleans(),
        failures=st.sampled_from([0, 1, -1]),
        fail_fast=st.sampled_from([False, False, False, True]),
        budgets=st.sampled_from(FAILURES),
        keep=st.sampled_from([None, 1, 2]),
        order=st.sampled_from(["max", "min"]),
        budget_s=st.sampled_from([None, None, None, 60.0]),
        saves=st.booleans(),
        trials=st.integers(0, 4),
        nodes=st.sampled_from([None, None, 0, 1, 2, 3]),
        has_people=st.booleans(),
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
        saves: bool,
        trials: int,
        nodes: int | None,
        has_people: bool,
    ) -> None:
        self.has_nodes = nodes is not None
        self.has_people = has_people
        spec: dict[str, Any] = {} if not depends else {"resources": None}
        self.run = Ordered(
            capacity={} if self.has_nodes else CAPACITY,
            offer=OFFER if self.has_nodes else (),
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
            saves_when_told=saves,
            tell=self.story.append,
            **spec,
        )
        self.perform(self.run.began)
        for _ in range(nodes or 0):
            self.joins()
        self.come_far(trials)

    def come_far(self, trials: int) -> None:
        """Let this many trials report and save themselves twice, as far as there is room."""
        for _ in range(trials):
            if self.run.machine.asking:
                self.search_answers(0)
        while self.asked:
            self.user_answers(self.asked.pop(), [])
        for worker in self.those("starting"):
            self.starts(worker)
            for score in (1.0, 2.0):
                self.reports(worker, [], score, checkpoint=True)
                self.is_answered(worker, "continue")

    @precondition(lambda self: self.run.machine.asking and len(self.run.machine.trials) < MOST)
    @rule(number=st.integers(0, len(BUNDLES) - 1))
    def search_answers(self, number: int) -> None:
        static = self.run.machine.spec.resources is not None
        several = BUNDLES if self.has_nodes else BUNDLES[: len(REQUESTS)]
        resources = several[number % len(several)]
        self.perform(self.run.suggest() if static else self.run.suggest(resources))

    @precondition(lambda self: self.run.machine.asking_config)
    @rule(is_refused=st.sampled_from([False, False, True]))
    def added_config_is_tried(self, is_refused: bool) -> None:
        if is_refused:
            self.perform(self.run.handle(ConfigRefused(why="its code raised")))
        else:
            self.perform(self.run.suggest(is_added=True))

    @precondition(lambda self: self.has_people)
    @rule(order=st.sampled_from(ORDERS_OF_PEOPLE), number=st.integers(0, MOST))
    def person_orders(self, order: str, number: int) -> None:
        self.is_ordered(order, number)

    def is_ordered(self, order: str, number: int) -> None:
        """Orders that do not apply may arrive, too: they change nothing."""
        trials = [*self.run.machine.trials, ""]
        trial_id = trials[number % len(trials)]
        if event := order_of_a_person(order, trial_id, number):
            self.perform(self.run.handle(event))

    @precondition(lambda self: self.run.machine.asking and len(self.run.machine.trials) > 2)
    @rule()
    def search_ends(self) -> None:
        self.perform(self.run.handle(SearchEnded()))

    @rule(seed=st.integers(0, 9999), steps=st.integers(1, 30))
    def life_goes_on(self, seed: int, steps: int) -> None:
        """The most frequent steps, so that the others hit runs that are well advanced.

        Hypothesis takes longer to draw than the machine to decide: these dice are Python's.
        """
        dice = Random(seed)
        for _ in range(steps):
            busy = self.those("starting", "running", "reporting", "leaving")
            if self.uncommitted and dice.random() < 0.5:
                self.uploader_commits(dice.randrange(len(self.uncommitted)))
            elif self.asked and dice.random() < 0.5:
                self.user_answers(self.asked.pop(), self.rolled(dice))
            elif self.has_people and dice.random() < 0.2:
                self.is_ordered(dice.choice(ORDERS_OF_PEOPLE), dice.randrange(MOST))
            elif busy:
                self.worker_goes_on(dice.choice(busy), dice)

    @rule(
        reason=st.sampled_from(["budget", "interrupt", "abort", "preempted"]),
        chance=st.sampled_from(range(6)),
    )
    def end_is_ordered(self, reason: EndReason, chance: int) -> None:
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
        if chance and not self.finished:
            return
        self.run.crash()
        self.compare_with_snapshot()
        self.workers.clear()
        self.uncommitted.clear()
        self.waits.clear()
        self.asked.clear()
        self.open.clear()
        self.leaving.clear()
        self.finished = 0
        for trial in list(self.run.machine.trials.values()):
            for known in trial.checkpoints[len(trial.checkpoints) - lost :]:
                self.loses(trial.trial_id, known.index, after_s=0)
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
        assert facts(machine) == facts(self.run.machine)
        self.run.machine = machine

    @rule()
    def snapshot_is_written(self) -> None:
        written = msgpack.packb(snapshot(self.run.machine))
        self.kept = (written, len(self.run.events))

    def compare_with_snapshot(self) -> None:
        """The newest snapshot and the later records are equal to the whole journal."""
        if self.kept is None:
            return
        written, known = self.kept
        machine = from_snapshot(msgpack.unpackb(written, strict_map_key=False))
        machine.policy = Obeying()
        for event, now, answers in self.run.events[known:]:
            machine.replay(event, now=now, answers=answers)
        assert facts(machine) == facts(self.run.machine)

    # -- what must hold -------------------------------------------------------------------------

    @invariant()
    def the_machine_knows_which_workers_there_are(self) -> None:
        machine = self.run.machine
        idle = {w.trial_id for w in self.workers.values() if w.state == "idle"}
        assert machine.placement.idle.keys() == idle
        assert machine.placement.holds.keys() == self.workers.keys() - idle

    @invariant()
    def no_trial_is_forgotten(self) -> None:
        machine = self.run.machine
        if machine.finished or machine.ending:
            return
        for trial in machine.trials.values():
            if trial.status is Status.PENDING and trial.trial_id not in self.skipped:
                waits = (
                    trial.trial_id in machine.placement.queue
                    or trial.trial_id in machine.placement.waits
                    or trial.trial_id in machine.placement.holds
                    or trial.trial_id in machine.questions
                )
                assert waits, trial.story()

    def teardown(self) -> None:
        """Whatever happened, the run can be finished, and the journal has all of it."""
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
        if not busy and self.asked:
            self.user_answers(self.asked.pop(), [])
            return
        if not busy and self.run.machine.placement.waiting_for(WaitsFor.CHECKPOINT):
            self.uploader_commits(0)
            return
        if not busy and self.run.machine.placement.queue:
            self.joins()
            return
        if not busy and self.run.machine.asking_config:
            self.perform(self.run.handle(ConfigRefused(why="the end")))
            return
        if not busy and (held := self.run.machine.held):
            self.perform(self.run.handle(ResumeRequested(trial_id=held[0], by="ann")))
            return
        if not busy:
            self.perform(self.run.handle(SearchEnded()))
            return
        worker = busy[0]
        if worker.state == "starting" and worker.origin is not None:
            self.is_given_its_copy(worker)
            return
        if worker.state == "starting":
            self.perform(self.run.start(worker.trial_id))
        if worker.state != "leaving":
            worker.state = "idle" if self.run.machine.spec.reuse_actors else "leaving"
            self.perform(self.run.returns(worker.trial_id, attempt=worker.attempt))
            return
        del self.workers[worker.trial_id]
        self.perform(self.run.exits(worker.trial_id, attempt=worker.attempt))
