"""Runs of a machine whose trials report often, with failures, crashes and a person's orders."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from holdfast.scheduler.effects import Effect
from holdfast.scheduler.events import (
    LimitChanged,
    NoteWritten,
    Order,
    PauseRequested,
    ResumeRequested,
    TrialStopOrdered,
)
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policies.hyperband import HyperBandScheduler
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.scheduler.policy import FIFOScheduler, TrialScheduler
from holdfast.testing.rehearsal import Lockstep

_TRIALS, SLOTS, _LAST = 8, 4, 27
_GOAL: dict[str, Any] = {"metric": "loss", "mode": "min"}


class DenseRun(Lockstep):
    """Runs trials that report often, rarely with a checkpoint, and fail, are killed, and get
    orders of a person at random."""

    def __init__(self, policy: TrialScheduler, seed: int, **spec: Any) -> None:
        self._dice = random.Random(seed)
        slots = {"CPU": float(SLOTS)}
        super().__init__(policy, self._row, trials=_TRIALS, capacity=slots, **_GOAL, **spec)

    def _row(self, index: int, iteration: int) -> Mapping[str, Any]:
        return {"loss": self._dice.random(), "text": "x"}

    def go_on(self) -> list[Effect]:
        if not self.running:
            held = self.run.machine.held
            assert held, "the run hangs"
            return self.run.handle(ResumeRequested(trial_id=held[0], by="ann"))
        trial_id = self._dice.choice(sorted(self.running))
        trial, luck = self.run.trial(trial_id), self._dice.random()
        if trial.iteration == _LAST:
            return self.end(trial_id)
        if luck < 0.02:
            self.running.discard(trial_id)
            return [*self.run.fails(trial_id), *self.run.exits(trial_id)]
        if luck < 0.03:
            self.crash()
            return []
        if luck < 0.05:
            return self.run.handle(self._order(trial_id))
        row = self.life(trial.spec.index, trial.iteration + 1)
        return self.run.report(trial_id, row, checkpoint=self._dice.random() < 0.2)

    def _order(self, trial_id: str) -> Order:
        """A person pauses and resumes, writes and stops."""
        orders: list[Order] = [
            PauseRequested(trial_id=trial_id, by="ann"),
            NoteWritten(trial_id=trial_id, text=f"{self._dice.random()}", by="ann"),
            LimitChanged(max_concurrent=self._dice.choice([None, 2, 3]), by="ann"),
            TrialStopOrdered(trial_id=trial_id, by="ann"),
        ]
        return self._dice.choice(orders)


RUNS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "fifo": (FIFOScheduler, {}),
    "bound": (FIFOScheduler, {"stop": {"training_iteration": 20, "loss": 0.98}}),
    "strict": (FIFOScheduler, {"strict_stop": True, "stop": {"loss": 2.0, "text": 1.0}}),
    "saving": (FIFOScheduler, {"saves_when_told": True}),
    "asha": (lambda: ASHAScheduler(max_t=_LAST, grace_period=3), {}),
    "hyperband": (lambda: HyperBandScheduler(max_t=9), {"saves_when_told": True}),
    "pbt": (
        lambda: PopulationBasedTraining(
            perturbation_interval=4, hyperparam_mutations={"lr": [1, 2, 3]}
        ),
        {"saves_when_told": True},
    ),
}


def dense_run(name: str, seed: int) -> DenseRun:
    """One of RUNS, not begun: a policy, and fields of the experiment's spec."""
    make, spec = RUNS[name]
    return DenseRun(make(), seed, **spec)
