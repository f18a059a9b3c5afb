"""Says what a resume of an interrupted run repeats. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.text.values import counted, duration
from holdfast.trial.trial import Trial


def repeated_text(trials: Iterable[Trial]) -> str:
    """The iterations that unfinished trials have reported and not saved; "" if there are none."""
    behind = [
        trial
        for trial in trials
        if not trial.status.is_final and trial.iteration and not trial.has_saved
    ]
    unsaved = [trial for trial in behind if not trial.checkpoints]
    saved = [trial for trial in behind if trial.checkpoints]
    parts = []
    if unsaved:
        many = len(unsaved) > 1
        parts.append(
            f"{counted(len(unsaved), 'unfinished trial', 'unfinished trials')} "
            f"{'have' if many else 'has'} no checkpoint and will start over, which repeats "
            f"{_work(unsaved)}. Pass report() a checkpoint to keep such work."
        )
    if saved:
        many = len(saved) > 1
        parts.append(
            f"{counted(len(saved), 'trial', 'trials')} will resume from "
            f"{'checkpoints' if many else 'a checkpoint'} and repeat {_work(saved)}."
        )
    return " ".join(parts)


def _work(trials: Sequence[Trial]) -> str:
    """`12 iterations (1m 20s of training)`."""
    iterations, seconds = 0, 0.0
    for trial in trials:
        newest = trial.newest_checkpoint
        iterations += trial.iteration - (newest.iteration if newest else 0)
        seconds += trial.time_total_s - (newest.time_total_s if newest else 0.0)
    return f"{counted(iterations, 'iteration', 'iterations')} ({duration(seconds)} of training)"
