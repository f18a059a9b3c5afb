"""A shell with dice and no processes: it performs what the machine decides, and checks it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

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
from holdfast.trial.resources import Place
from holdfast.trial.trial import Origin, Status
from tests.scheduler.any_order.ordered import Ordered
from tests.scheduler.any_order.orders import CAPACITY


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
