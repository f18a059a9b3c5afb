"""Runs of a machine whose trials report often, with failures, crashes and a person's orders."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.scheduler.codec import Record
from holdfast.scheduler.effects import Effect, Finish, Halt, Launch, Reply, Suggest, Verdict
from holdfast.scheduler.events import (
    LimitChanged,
    NoteWritten,
    Order,
    PauseRequested,
    ResumeRequested,
    SearchEnded,
    TrialStopOrdered,
)
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policies.hyperband import HyperBandScheduler
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.scheduler.policy import FIFOScheduler, TrialScheduler
from holdfast.testing.rehearsal import Rehearsal

_TRIALS, SLOTS, _LAST = 8, 4, 27
_GOAL: dict[str, Any] = {"metric": "loss", "mode": "min"}


class DenseRun:
    """Runs trials that report often, rarely with a checkpoint, and fail and are killed at
    random."""

    def __init__(self, policy: TrialScheduler, seed: int, **spec: Any) -> None:
        self.dice = random.Random(seed)
        self.run = Rehearsal(
            capacity={"CPU": float(SLOTS)},
            policy=policy,
            scheduler=type(policy).__name__,
            **_GOAL,
            **spec,
        )
        self.running: set[str] = set()
        self.finished = False
        self.perform(self.run.began)

    def perform(self, effects: Sequence[Effect]) -> None:
        to_do = list(effects)
        while to_do:
            effect = to_do.pop(0)
            if isinstance(effect, Suggest):
                is_over = effect.index == _TRIALS
                to_do += self.run.handle(SearchEnded()) if is_over else self.run.suggest()
            elif isinstance(effect, Launch):
                self.running.add(effect.trial_id)
                to_do += self.run.start(effect.trial_id)
            elif isinstance(effect, Halt) or (
                isinstance(effect, Reply) and effect.verdict in (Verdict.STOP, Verdict.PAUSE)
            ):
                self.running.discard(effect.trial_id)
                to_do += self.run.ends(effect.trial_id)
            elif isinstance(effect, Finish):
                self.finished = True

    def step(self) -> None:
        trial_id = self.dice.choice(sorted(self.running))
        trial, luck = self.run.trial(trial_id), self.dice.random()
        if trial.iteration == _LAST:
            self.running.discard(trial_id)
            self.perform(self.run.ends(trial_id))
        elif luck < 0.02:
            self.running.discard(trial_id)
            self.perform([*self.run.fails(trial_id), *self.run.exits(trial_id)])
        elif luck < 0.03:
            self.run.crash()
            self.running.clear()
            self.perform(self.run.resume())
        elif luck < 0.05:
            self.order(trial_id)
        else:
            row = {"loss": self.dice.random(), "text": "x"}
            checkpoint = self.dice.random() < 0.2
            self.perform(self.run.report(trial_id, row, checkpoint=checkpoint))

    def order(self, trial_id: str) -> None:
        """A person pauses and resumes, writes and stops."""
        orders: list[Order] = [
            PauseRequested(trial_id=trial_id, by="ann"),
            NoteWritten(trial_id=trial_id, text=f"{self.dice.random()}", by="ann"),
            LimitChanged(max_concurrent=self.dice.choice([None, 2, 3]), by="ann"),
            TrialStopOrdered(trial_id=trial_id, by="ann"),
        ]
        self.perform(self.run.handle(self.dice.choice(orders)))

    def to_the_end(self) -> list[Record]:
        for _ in range(3_000):
            if self.finished:
                break
            if self.running:
                self.step()
                continue
            held = self.run.machine.held
            assert held, "the run hangs"
            self.perform(self.run.handle(ResumeRequested(trial_id=held[0], by="ann")))
        return self.run.events


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
