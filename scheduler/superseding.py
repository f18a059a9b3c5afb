"""Checkpoints go once they are superseded and no clone is to be given them any more."""

from __future__ import annotations

from holdfast.scheduler.effects import Discard, Effect
from holdfast.scheduler.retention import superseded
from holdfast.scheduler.state import State
from holdfast.trial.events import Dropped
from holdfast.trial.trial import Trial


def supersede(state: State, trial_id: str) -> list[Effect]:
    """Drop those of the trial's checkpoints that nobody needs."""
    checkpoints, needed = state.trials[trial_id].checkpoints, state.needed_of(trial_id)
    effects: list[Effect] = []
    for checkpoint in superseded(checkpoints, state.spec.checkpoint, needed=needed):
        state.move(Dropped(trial_id=trial_id, index=checkpoint.index))
        effects.append(Discard(trial_id=trial_id, checkpoint=checkpoint))
    return effects


def give_up_copy(state: State, was: Trial) -> list[Effect]:
    """Drop what was kept only for a clone that `was` waiting for its copy."""
    return [] if was.origin is None else supersede(state, was.origin.trial_id)
