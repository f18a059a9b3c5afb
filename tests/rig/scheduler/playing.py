"""A study whose events come in a random order: a search that takes its time, workers that obey."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Literal

from holdfast.scheduler.effects import Effect, Halt, Launch, Reply, Suggest, Verdict
from holdfast.scheduler.events import SearchWaits
from holdfast.scheduler.policy import TrialScheduler
from holdfast.testing.rehearsal import Lockstep

Step = Mapping[str, Any] | Literal["raises", "returns"]
"""The next step of a trial: it reports these metrics, or ends."""


class Play(Lockstep):
    """Runs a study in a random order that `seed` determines.

    `life(index, iteration)` returns what trial number `index` does at `iteration`. A function
    saves itself with its reports at the iterations 1, 1 + `saves_every`, ...; a class (spec of the
    rehearsal: `saves_when_told`) when it pauses. The search has `trials` trials, and says "not
    now" while `most_alive` have not ended.
    """

    def __init__(
        self,
        policy: TrialScheduler,
        life: Callable[[int, int], Step],
        *,
        trials: int,
        seed: int = 0,
        saves_every: int = 1,
        most_alive: int | None = None,
        **given: Any,
    ) -> None:
        super().__init__(policy, life, trials=trials, **given)
        self._samples, self._saves_every, self._most_alive = trials, saves_every, most_alive
        self._chance = random.Random(seed)
        self._workers: dict[str, str] = {}
        self._is_asked = False

    def crash(self) -> None:
        super().crash()
        self._workers.clear()
        self._is_asked = False

    def go_on(self) -> list[Effect]:
        nexts = [*self._workers, *(["search"] if self._search_has_word() else [])]
        assert nexts, "nothing is under way, and the run is not at its end"
        chosen = nexts[int(self._chance.random() * len(nexts))]
        return self._searches() if chosen == "search" else self._works(chosen)

    # -- the search -----------------------------------------------------------------------------

    def _says_not_now(self) -> bool:
        alive = sum(not trial.status.is_final for trial in self.trials)
        has_more = len(self.trials) < self._samples
        return has_more and self._most_alive is not None and alive >= self._most_alive

    def _search_has_word(self) -> bool:
        if not self._is_asked:
            return False
        machine = self.run.machine
        return not self._says_not_now() or bool(machine.paused and not machine.search_waits)

    def _searches(self) -> list[Effect]:
        if self._says_not_now():
            return self.run.handle(SearchWaits())
        self._is_asked = False
        return self.suggest()

    # -- the workers ----------------------------------------------------------------------------

    def _works(self, trial_id: str) -> list[Effect]:
        match self._workers[trial_id]:
            case "starting":
                self._workers[trial_id] = "running"
                return self.run.start(trial_id)
            case "running":
                return self._trains(trial_id)
            case "saving":
                self._workers[trial_id] = "returning"
                return self.run.save(trial_id)
            case "returning":
                self._workers[trial_id] = "leaving"
                return self.run.returns(trial_id)
            case _:
                del self._workers[trial_id]
                return self.run.exits(trial_id)

    def _trains(self, trial_id: str) -> list[Effect]:
        trial = self.run.trial(trial_id)
        step = self.life(trial.spec.index, trial.iteration + 1)
        if step == "returns":
            self._workers[trial_id] = "leaving"
            return self.run.returns(trial_id)
        if step == "raises":
            self._workers[trial_id] = "leaving"
            return self.run.fails(trial_id)
        is_function = not self.run.machine.spec.saves_when_told
        saves = is_function and trial.iteration % self._saves_every == 0
        return self.run.report(trial_id, step, checkpoint=saves)

    def perform(self, effect: Effect) -> list[Effect]:
        match effect:
            case Suggest():
                self._is_asked = True
            case Launch():
                self._workers[effect.trial_id] = "starting"
            case Reply(verdict=Verdict.PAUSE) if self.run.machine.spec.saves_when_told:
                self._workers[effect.trial_id] = "saving"
            case Reply(verdict=Verdict.PAUSE | Verdict.STOP) | Halt():
                self._workers[effect.trial_id] = "returning"
            case _:
                return super().perform(effect)
        return []
