"""An experiment whose trials run in lockstep: the one furthest behind reports next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import Any

from holdfast.scheduler.effects import (
    AskScheduler,
    Effect,
    Finish,
    Halt,
    Launch,
    Reply,
    Suggest,
    Warn,
)
from holdfast.scheduler.events import SchedulerAnswered, SearchEnded
from holdfast.scheduler.policy import TrialScheduler
from holdfast.scheduler.verdict import Verdict
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.trial import Trial

_MOST_EVENTS = 20_000


class Lockstep:
    """Plays a study in which the next event depends only on the trials, so crashes change nothing.

    `life(index, iteration)` returns a trial's report, or None when the trial returns. Each report
    has a checkpoint. After each number of events in `crashes` the run crashes and is resumed.
    `told` has its warnings.
    """

    def __init__(
        self,
        policy: TrialScheduler,
        life: Callable[[int, int], Mapping[str, Any] | None],
        *,
        trials: int,
        capacity: Mapping[str, float] | None = None,
        crashes: Container[int] = (),
        **spec: Any,
    ) -> None:
        self.run = Rehearsal(
            capacity=capacity or {"CPU": float(trials)},
            policy=policy,
            scheduler=type(policy).__name__,
            **spec,
        )
        self.finished: Finish | None = None
        self.told: list[str] = []
        self._life, self._trials, self._crashes = life, trials, crashes
        self._running: set[str] = set()
        self._to_do = deque(self.run.began)

    def to_the_end(self) -> Lockstep:
        """Run to the end. Raises AssertionError if the run has none."""
        while self.finished is None:
            assert len(self.run.events) < _MOST_EVENTS, (
                f"the run has not ended after {_MOST_EVENTS:,} events"
            )
            if len(self.run.events) in self._crashes:
                self.run.crash()
                self._running.clear()
                self._to_do = deque(self.run.resume())
            elif self._to_do:
                self._to_do += self._perform(self._to_do.popleft())
            else:
                assert self._running, "the run hangs: no trial runs, and it has not ended"
                self._to_do += self._go_on(min(self._running, key=self._place))
        return self

    @property
    def trials(self) -> list[Trial]:
        """The trials, in the order in which they were added."""
        return list(self.run.machine.trials.values())

    @property
    def ends(self) -> list[tuple[str, int]]:
        """The status and the last iteration of each trial."""
        return [(trial.status.value, trial.iteration) for trial in self.trials]

    def _place(self, trial_id: str) -> tuple[int, int]:
        trial = self.run.trial(trial_id)
        return trial.iteration, trial.spec.index

    def _go_on(self, trial_id: str) -> list[Effect]:
        trial = self.run.trial(trial_id)
        row = self._life(trial.spec.index, trial.iteration + 1)
        if row is None:
            self._running.discard(trial_id)
            return self.run.ends(trial_id)
        return self.run.report(trial_id, row, checkpoint=True)

    def _perform(self, effect: Effect) -> list[Effect]:
        match effect:
            case Suggest():
                is_over = effect.index == self._trials
                return self.run.handle(SearchEnded()) if is_over else self.run.suggest()
            case Launch():
                self._running.add(effect.trial_id)
                return self.run.start(effect.trial_id)
            case Reply(verdict=Verdict.PAUSE | Verdict.STOP) | Halt():
                self._running.discard(effect.trial_id)
                return self.run.ends(effect.trial_id)
            case AskScheduler():
                return self._ask(effect)
            case Finish():
                self.finished = effect
            case Warn():
                self.told.append(effect.text)
            case _:
                pass
        return []

    def _ask(self, effect: AskScheduler) -> list[Effect]:
        assert self.run.machine.policy is not None
        answer = self.run.machine.policy.answer(effect.question)
        return self.run.handle(SchedulerAnswered(trial_id=effect.trial_id, answer=answer))
