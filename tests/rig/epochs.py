"""A trial that counts epochs: what it saves, and where it resumes."""

from __future__ import annotations

from pathlib import Path

from holdfast import tune


def saved(epoch: int) -> tune.Checkpoint:
    """A checkpoint of this epoch."""
    folder = tune.staging_directory()
    Path(folder, "epoch").write_text(str(epoch))
    return tune.Checkpoint.from_directory(folder)


def epoch_of(checkpoint: tune.Checkpoint | None) -> int:
    """The epoch that it was saved in; 0 without a checkpoint."""
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return int(Path(folder, "epoch").read_text())


def resumed() -> int:
    """The last epoch before this attempt."""
    return epoch_of(tune.get_checkpoint())
