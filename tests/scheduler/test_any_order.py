"""The machine under random but possible events: a shell with dice and no processes.

After every event the invariants hold, a shell could perform the effects, and the snapshot and the
journal give the same machine. At the end every run must finish. A failure is shrunk, and shown as
the list of its events.

An event of a new kind needs a rule in `Workers` or `AnyOrder` that makes it happen
(`self.perform(self.run.handle(event))`), an effect a case in `perform_one` of `Shell`; the
conditions that must hold are in `holdfast.testing.invariants`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, assert_never

import msgpack
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.scheduler.codec import snapshot
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
    Verdict,
    Wait,
    Warn,
)
from holdfast.scheduler.events import (
    CheckpointLost,
    ConfigAdded,
    ConfigRefused,
    EndOrdered,
    EndReason,
    Event,
    LimitChanged,
    NoteWritten,
    PauseRequested,
    ResumeRequested,
    SamplesAdded,
    SchedulerAnswered,
    SearchEnded,
    TrialStopOrdered,
    WaitEnded,
)
from holdfast.scheduler.machine import from_snapshot
from holdfast.scheduler.placement import WaitsFor
from holdfast.scheduler.policy import (
    AskUser,
    ChangeTrial,
    CloneTrial,
    Decision,
    Observation,
    PauseTrial,
    SaveTrial,
    StopTrial,
    TrialAdded,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    UserAnswered,
    View,
)
from holdfast.testing.invariants import check
from holdfast.testing.rehearsal import Rehearsal, facts, failure
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.errors import FailureKind, ProcessFailureKind
from holdfast.trial.resources import STRATEGIES, NodeKind, Place, PlacementGroupFactory
from holdfast.trial.trial import Origin, Status, Trial, TrialSpec

CAPACITY = {"CPU": 3, "GPU": 1}
REQUESTS: list[dict[str, float]] = [
    {"CPU": 1},
    {"CPU": 1},
    {"CPU": 2},
    {"CPU": 0.5, "GPU": 1 / 3},
    {"GPU": 1},
]
MOST = 8
BUNDLES = [
    *(PlacementGroupFactory([request]) for request in REQUESTS),
    *(PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 1}], strategy) for strategy in STRATEGIES),
    PlacementGroupFactory([{"CPU": 1}] * 4, "SPREAD", least_bundles=2),
    PlacementGroupFactory([{"GPU": 1}, {"CPU": 2}, {"CPU": 1}], least_bundles=1),
]
# The decisions that a report or an answer may lead to: kind, number of the trial, and another
# number: of a clone's source, of new resources, or of a new config.
Order = tuple[str, int, int]
KINDS = ["stop", "pause", "unpause", "clone", "clone", "change", "ask", "save"]
ORDERS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 5)), max_size=2
)


class Obeying(TrialScheduler):
    """Decides what the report's row, or the user's answer, says, so a replay decides the same.

    It asks about every third trial before that starts.
    """

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        match event:
            case TrialAdded() if view.trials[event.trial_id].spec.index % 3 == 2:
                return [AskUser(trial_id=event.trial_id, question={})]
            case TrialReported(row=told) | UserAnswered(answer=told):
                return [decision(view, event.trial_id, *order) for order in told["orders"]]
            case _:
                return ()


def decision(view: View, reporting: str, kind: str, number: int, other: int) -> Decision:
    """The trial for a number; 0 for the one that the event is about."""
    trials = [reporting, *view.trials]
    trial_id = trials[number % len(trials)]
    saved = [one for one in view.trials if one != trial_id and view.trials[one].checkpoints]
    match kind:
        case "stop":
            return StopTrial(trial_id=trial_id)
        case "pause":
            return PauseTrial(trial_id=trial_id)
        case "unpause":
            return UnpauseTrial(trial_id=trial_id)
        case "clone" if saved:
            source = saved[other % len(saved)]
            return CloneTrial(trial_id=trial_id, source=source, config={"lr": -1 - other})
        case "change":
            config = {"lr": 1 + other} if other % 2 else None
            resources = None
            if other < 5:
                resources = BUNDLES[other * 2 if view.total_resources != CAPACITY else other]
            return ChangeTrial(trial_id=trial_id, config=config, resources=resources)
        case "ask":
            return AskUser(trial_id=trial_id, question={})
        case _:
            return SaveTrial(trial_id=trial_id)


ORDERS_OF_PEOPLE = ["stop", "pause", "pause", "now", "resume", "resume", "limit", "add", "config"]


def order_of_a_person(order: str, trial_id: str, number: int) -> Event | None:
    """None if the order needs a trial and there is none."""
    match order:
        case "limit":
            return LimitChanged(max_concurrent=number or None, by="ann")
        case "add":
            return SamplesAdded(count=number, by="ann")
        case "config":
            return ConfigAdded(config={"lr": number}, by="ann")
        case _ if not trial_id:
            return None
        case "stop" if number % 2:  # rarer than the others
            return TrialStopOrdered(trial_id=trial_id, by="ann")
        case "resume":
            return ResumeRequested(trial_id=trial_id, by="ann")
        case "pause" | "now":
            return PauseRequested(trial_id=trial_id, by="ann", now=order == "now")
        case _:
            return NoteWritten(trial_id=trial_id, text="x" * number, by="ann")


class Ordered(Rehearsal):
    """Tracks how each trial must continue, from the scheduler's decisions.

    While the run is ending, the machine's reaction to a decision is accepted as it is.
    """

    def __init__(self, **given: Any) -> None:
        self.configs: dict[str, Mapping[str, Any]] = {}
        self.requests: dict[str, PlacementGroupFactory] = {}
        self.origins: dict[str, Origin] = {}
        super().__init__(**given)

    def handle(self, event: Event, *, after_s: float = 1.0) -> list[Effect]:
        before = dict(self.machine.trials)
        effects = super().handle(event, after_s=after_s)
        for trial_id in self.machine.trials.keys() - before.keys():
            self.accept(self.trial(trial_id))
        over: set[str] = set()
        for decisions in self.machine.answers:
            for one in decisions:
                self.account(one, before, over)
        return effects

    def account(self, decision: Decision, before: Mapping[str, Trial], over: set[str]) -> None:
        """`before` are the trials before the event, `over` those that it has ended."""
        if not isinstance(decision, (StopTrial, CloneTrial, ChangeTrial)):
            return
        trial_id = decision.trial_id
        was = before[trial_id].status if trial_id in before else Status.PENDING
        if self.machine.ending:
            self.accept(self.trial(trial_id))
        elif was not in (Status.PENDING, Status.RUNNING, Status.PAUSED) or trial_id in over:
            return
        elif isinstance(decision, StopTrial):
            over.add(trial_id)
        elif isinstance(decision, ChangeTrial):
            self.configs[trial_id] = decision.config or self.configs[trial_id]
            self.requests[trial_id] = decision.resources or self.requests[trial_id]
        elif decision.source != trial_id:
            self.configs[trial_id] = decision.config
            newest = self.trial(decision.source).newest_checkpoint
            assert newest is not None, "the run goes on without what the clone is to begin from"
            self.origins[trial_id] = Origin(trial_id=decision.source, checkpoint=newest)

    def resume(self, **given: Any) -> list[Effect]:
        """A trial that restarts, or continues after its end, forgets its orders."""
        before = list(self.machine.trials.values())
        effects = super().resume(**given)
        for was in before:
            is_over = was.status.is_final or was.status is Status.STOPPING
            if is_over or given["unfinished"] == "restart":
                self.accept(self.trial(was.trial_id))
        return effects

    def accept(self, trial: Trial) -> None:
        """Accept the machine's state."""
        trial_id = trial.trial_id
        self.configs[trial_id], self.requests[trial_id] = trial.config, trial.spec.resources
        self.origins.pop(trial_id, None)
        if trial.origin is not None:
            self.origins[trial_id] = trial.origin

    def check(self, launch: Launch) -> None:
        """Check that a trial continues with what was ordered."""
        trial_id = launch.trial_id
        assert self.trial(trial_id).config == self.configs[trial_id]
        assert self.trial(trial_id).spec.resources == self.requests[trial_id]
        assert launch.allocation.amounts == self.trial(trial_id).granted.required_resources
        assert launch.origin == self.origins.get(trial_id)


@dataclass
class Worker:
    """`state` is one of starting, running, reporting (waits for an answer), leaving, idle."""

    trial_id: str
    attempt: int
    state: str = "starting"
    asked: bool = False
    told: bool = False
    saves: bool = False  # before it continues
    given: int | None = None  # the checkpoint that it begins with
    origin: Origin | None = None  # the source of the copy that it still waits for
    places: Sequence[Place] = ()
    is_lost: bool = False  # with its node; its exit is not known yet


class Shell(RuleBasedStateMachine):
    """Performs effects on workers; those who inherit from it have the rules, and begin a run."""

    run: Ordered
    has_nodes: bool
    has_people: bool

    def __init__(self) -> None:
        super().__init__()
        self.workers: dict[str, Worker] = {}
        self.finished = 0
        self.skipped: set[str] = set()
        self.uncommitted: list[tuple[str, int]] = []
        self.waits: list[Wait] = []
        self.asked: list[str] = []
        self.again: TrialSpec | None = None  # a fresh run that is being made a trial
        self.lost: set[tuple[str, int]] = set()
        self.scores: dict[tuple[str, int], Any] = {}
        self.kept: tuple[bytes, int] | None = None
        self.story: list[str] = []
        self.open: set[str] = set()  # nodes where trials may start
        self.leaving: set[str] = set()
        self.joined = 0

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.perform_one(effect)

    def perform_one(self, effect: Effect) -> None:
        over = self.finished and not isinstance(effect, (Commit, Discard))
        assert not over, f"{effect} after the end"
        match effect:
            case Launch():
                self.launch(effect)
            case Reply() if self.workers[effect.trial_id].is_lost:
                pass
            case Reply():
                worker = self.workers[effect.trial_id]
                assert (worker.attempt, worker.state) == (effect.attempt, "reporting")
                worker.state = "running"
                worker.saves = effect.verdict is Verdict.SAVE
                worker.told |= effect.verdict not in (Verdict.CONTINUE, Verdict.SAVE)
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
            case Suggest(again=TrialSpec() as again):
                assert self.run.machine.asking_config
                self.again = again
            case Suggest(config=None):
                assert self.run.machine.asking
            case Suggest():
                assert self.run.machine.asking_config
            case Warn() if "makes no trial" in effect.text:
                pass
            case Warn() if "continues with" in effect.text or "with more work" in effect.text:
                assert self.has_nodes, "there is no elastic trial"
            case Warn() if "without a checkpoint" in effect.text:
                assert any(not trial.checkpoints for trial in self.run.machine.trials.values())
            case Warn():
                assert "score" in effect.text
                assert not all(type(score) is float for score in self.scores.values())
            case Finish():
                assert not self.workers, "finished, with workers left"
                self.finished += 1
            case AskScheduler():
                self.asked.append(effect.trial_id)
            case _:
                assert_never(effect)

    def launch(self, effect: Launch) -> None:
        if effect.reuse is not None:
            worker = self.workers.pop(effect.reuse)
            assert worker.state == "idle"
        assert effect.trial_id not in self.workers, "a second worker for one trial"
        self.run.check(effect)
        newest, origin = self.run.trial(effect.trial_id).newest_checkpoint, effect.origin
        assert effect.checkpoint == (newest if origin is None else None)
        given = newest.index if newest else None
        places = effect.allocation.places
        self.workers[effect.trial_id] = Worker(
            effect.trial_id, effect.attempt, given=given, origin=origin, places=places
        )
        assert bool(places) is self.has_nodes
        assert {place.node for place in places} <= self.open, "on a node that is gone or goes"
        self.check_nodes_are_not_overcommitted()

    def check_nodes_are_not_overcommitted(self) -> None:
        places = [place for worker in self.workers.values() for place in worker.places]
        for node in self.open | self.leaving:
            there = [place for place in places if place.node == node]
            for key, amount in CAPACITY.items():
                assert sum(place.amounts.get(key, 0) for place in there) <= amount + 1e-3
            on_gpu = sum(place.amounts.get("GPU", 0) for place in there if 0 in place.gpus)
            assert on_gpu <= 1 + 1e-3

    def discard(self, effect: Discard) -> None:
        """Check a discarded checkpoint: no record names it, no worker starts from it, no clone
        waits for it, and it is no better than those kept, apart from the newest and those that
        clones wait for."""
        trial, index = self.run.trial(effect.trial_id), effect.checkpoint.index
        assert index not in [known.index for known in trial.checkpoints]
        worker = self.workers.get(effect.trial_id)
        assert worker is None or worker.state != "starting" or worker.given != index
        awaited = self.awaited()
        assert (effect.trial_id, index) not in awaited, "a clone is to begin with it"
        if trial.status.is_final and index >= trial.next_checkpoint:
            return  # it was saved for a pause of a trial that has ended since
        committed = [known.index for known in trial.checkpoints if known.committed]
        assert index < committed[-1], "the newest goes"
        stays = [known for known in committed[:-1] if (effect.trial_id, known) not in awaited]
        worst = min((self.rank(effect.trial_id, known) for known in stays), default=None)
        assert worst is None or self.rank(effect.trial_id, index) <= worst

    def awaited(self) -> set[tuple[str, int]]:
        """The checkpoints that clones still wait for."""
        waiting = [
            trial.origin
            for trial in self.run.machine.trials.values()
            if trial.status in (Status.PENDING, Status.PAUSED)
        ]
        beginning = [worker.origin for worker in self.those("starting") if not worker.told]
        origins = [one for one in (*waiting, *beginning) if one is not None]
        return {(origin.trial_id, origin.checkpoint.index) for origin in origins}

    def rank(self, trial_id: str, index: int) -> float:
        score = self.scores[trial_id, index]
        is_min = self.run.machine.spec.checkpoint.checkpoint_score_order == "min"
        if not isinstance(score, float) or not math.isfinite(score):
            return -math.inf
        return -score if is_min else score

    def those(self, *states: str) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.state in states]

    def pick(self, data: st.DataObject, *states: str) -> Worker:
        return data.draw(st.sampled_from(self.those(*states)))


# The best of them is 3; some are not scores.
SCORES = [0.0, 1.0, 2.0, 3.0, float("nan"), float("-inf"), None, "high"]


class Workers(Shell):
    """What nodes and trials may do next, and what may happen to checkpoints and questions."""

    @precondition(lambda self: self.has_nodes and len(self.open) < 4)
    @rule()
    def node_joins(self) -> None:
        self.joins()

    def joins(self) -> None:
        self.joined += 1
        self.open.add(f"n{self.joined}")
        self.perform(self.run.joins(f"n{self.joined}", CAPACITY))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def node_announces_its_end(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.open)))
        self.open.discard(node)
        self.leaving.add(node)
        self.perform(self.run.is_leaving(node))

    @precondition(lambda self: self.open or self.leaving)
    @rule(data=st.data())
    def node_is_lost(self, data: st.DataObject) -> None:
        """Its workers are lost with it: their exits follow, each at some time."""
        node = data.draw(st.sampled_from(sorted(self.open | self.leaving)))
        self.open.discard(node)
        self.leaving.discard(node)
        for worker in self.workers.values():
            if any(place.node == node for place in worker.places):
                worker.state, worker.asked, worker.is_lost = "leaving", False, True
        self.perform(self.run.leaves(node))

    def rolled(self, dice: Random) -> list[Order]:
        order = dice.choice(KINDS), dice.randrange(6), dice.randrange(6)
        return [order] if dice.random() < 0.4 else []

    def worker_goes_on(self, worker: Worker, dice: Random) -> None:
        match worker.state:
            case "starting" if worker.origin is not None:
                self.is_given_its_copy(worker)
            case "starting":
                self.starts(worker)
            case "reporting":
                self.is_answered(worker, "continue")
            case "running" if not worker.told:
                self.reports(worker, self.rolled(dice), dice.choice(SCORES), checkpoint=True)
            case "running" if dice.random() < 0.3:
                self.saves(worker)
            case "running":
                self.returns(worker)
            case _:
                self.leaves(worker)

    @precondition(lambda self: self.those("starting"))
    @rule(data=st.data())
    def worker_is_up(self, data: st.DataObject) -> None:
        worker = self.pick(data, "starting")
        if worker.origin is None:
            self.starts(worker)
        else:
            self.is_given_its_copy(worker)

    def is_given_its_copy(self, worker: Worker) -> None:
        """Continue, unless the worker got the order to end meanwhile."""
        assert worker.origin is not None
        if worker.told:
            self.leaves(worker)
            return
        source, index = worker.origin.trial_id, worker.origin.checkpoint.index
        worker.origin, worker.given = None, self.run.trial(worker.trial_id).next_checkpoint
        self.scores[worker.trial_id, worker.given] = self.scores[source, index]
        del self.run.origins[worker.trial_id]
        self.perform(self.run.adopt(worker.trial_id))

    def starts(self, worker: Worker) -> None:
        worker.state = "running"
        self.perform(self.run.start(worker.trial_id))

    @precondition(lambda self: self.those("running"))
    @rule(data=st.data(), orders=ORDERS, checkpoint=st.booleans(), score=st.sampled_from(SCORES))
    def worker_reports(
        self, data: st.DataObject, orders: list[Order], checkpoint: bool, score: Any
    ) -> None:
        self.reports(self.pick(data, "running"), orders, score, checkpoint=checkpoint)

    def reports(
        self, worker: Worker, orders: list[Order], score: Any, *, checkpoint: bool
    ) -> None:
        worker.state = "reporting"
        metrics: dict[str, Any] = {"orders": [list(order) for order in orders]}
        metrics |= {} if score is None else {"score": score}
        if checkpoint:
            self.note_score(worker.trial_id, metrics)
        self.perform(
            self.run.report(
                worker.trial_id,
                metrics,
                checkpoint=checkpoint,
                has_room=checkpoint,
                attempt=worker.attempt,
            )
        )

    def note_score(self, trial_id: str, row: dict[str, Any]) -> None:
        """The record of the next checkpoint."""
        index = self.run.trial(trial_id).next_checkpoint
        self.scores[trial_id, index] = row.get("score")

    @precondition(lambda self: any(one.told or one.saves for one in self.those("running")))
    @rule(data=st.data())
    def worker_saves(self, data: st.DataObject) -> None:
        told = [worker for worker in self.those("running") if worker.told or worker.saves]
        self.saves(data.draw(st.sampled_from(told)))

    def saves(self, worker: Worker) -> None:
        worker.saves = False
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
    def function_raises(self, data: st.DataObject, kind: FailureKind) -> None:
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
        if worker.origin is None and newest:
            self.loses(worker.trial_id, newest.index)
        elif worker.origin is not None and not self.run.machine.ending:
            del self.run.origins[worker.trial_id]  # otherwise it is retried after a restore
        if worker.origin is not None or newest:
            worker.state = "leaving"
            self.perform(
                self.run.fails(worker.trial_id, kind="checkpoint", attempt=worker.attempt)
            )

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), kind=st.sampled_from(["lost", "memory", "hang"]))
    def worker_exits(self, data: st.DataObject, kind: ProcessFailureKind) -> None:
        self.leaves(data.draw(st.sampled_from(list(self.workers.values()))), kind)

    def leaves(self, worker: Worker, kind: ProcessFailureKind = "lost") -> None:
        del self.workers[worker.trial_id]
        self.perform(self.run.exits(worker.trial_id, kind=kind, attempt=worker.attempt))

    @precondition(lambda self: any(worker.asked for worker in self.those("reporting")))
    @rule(data=st.data(), what=st.sampled_from(["continue", "continue", "stop", "all", "error"]))
    def stopper_answers(self, data: st.DataObject, what: str) -> None:
        waiting = [worker for worker in self.those("reporting") if worker.asked]
        self.is_answered(data.draw(st.sampled_from(waiting)), what)

    def is_answered(self, worker: Worker, what: str) -> None:
        if not worker.asked:
            return  # it has the order to end, and gets nothing else
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
        self.uploader_commits(data.draw(st.integers(0, len(self.uncommitted) - 1)))

    def uploader_commits(self, at: int) -> None:
        self.perform(self.run.commit(*self.uncommitted.pop(at)))

    @precondition(lambda self: self.uncommitted)
    @rule(data=st.data())
    def uploader_finds_it_gone(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.uncommitted) - 1))
        trial_id, index = self.uncommitted.pop(at)
        worker = self.workers.get(trial_id)
        if worker is None or worker.given != index:
            self.loses(trial_id, index)
        else:  # the download for it finds out
            self.uncommitted.append((trial_id, index))

    def loses(self, trial_id: str, index: int, *, after_s: float = 1.0) -> None:
        self.lost.add((trial_id, index))
        in_run = after_s > 0
        gone = CheckpointLost(trial_id=trial_id, index=index, reason="gone", in_run=in_run)
        self.perform(self.run.handle(gone, after_s=after_s))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), orders=ORDERS)
    def user_answers_the_scheduler(self, data: st.DataObject, orders: list[Order]) -> None:
        at = data.draw(st.integers(0, len(self.asked) - 1))
        self.user_answers(self.asked.pop(at), orders)

    def user_answers(self, trial_id: str, orders: list[Order]) -> None:
        answer = {"orders": [list(order) for order in orders]}
        self.perform(self.run.handle(SchedulerAnswered(trial_id=trial_id, answer=answer)))


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
        confirm=st.sampled_from([0, 0, 2]),
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
        confirm: int,
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
            confirm=confirm,
            metric="score",
            mode="max",
            strict_metric=False,
            saves_when_told=saves,
            write=self.story.append,
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
        if self.again is not None:
            self.run_again(self.again)
        elif is_refused:
            self.perform(self.run.handle(ConfigRefused(why="its code raised")))
        else:
            self.perform(self.run.suggest(is_added=True))

    def run_again(self, spec: TrialSpec) -> None:
        self.again = None
        self.perform(self.run.repeat(spec))

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
        self.again = None
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
        if not busy and self.again is not None:
            self.run_again(self.again)
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


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=2 * settings().max_examples,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
