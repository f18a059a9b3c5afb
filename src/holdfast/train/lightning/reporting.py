"""The callback that reports each epoch of a Lightning training, with a checkpoint."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from holdfast.experiment.worker.context import report, staging_directory
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.lightning.flavour import plain
from holdfast.train.lightning.preparing import check_ranks
from holdfast.train.lightning.ranks import keep_sigterm
from holdfast.train.torch.noticing import preemption_agreed


class EpochReport:
    """Reports `trainer.callback_metrics`, `epoch`, `step` and a checkpoint at the end of each
    training epoch.

    `trainer.save_checkpoint` writes the checkpoint as CHECKPOINT_NAME, which is a file, or a
    directory with sharded strategies. Give it to `trainer.fit(..., ckpt_path=...)` to resume. If
    the trial is preempted (SIGTERM), it also reports after the current batch, and the training
    resumes from there. `when_preempted=False` turns that off, and saves the ranks a message to
    each other in each step.
    """

    CHECKPOINT_NAME: ClassVar[str] = "checkpoint.ckpt"

    def __init__(self, *, when_preempted: bool = True) -> None:
        super().__init__()
        self._when_preempted = when_preempted

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Raises InvalidConfig if each rank would train alone."""
        check_ranks(trainer)
        keep_sigterm()

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._when_preempted and preemption_agreed():
            report_state(trainer, _metrics(trainer), self.CHECKPOINT_NAME)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        report_state(trainer, _metrics(trainer), self.CHECKPOINT_NAME)


def _metrics(trainer: Any) -> dict[str, Any]:
    counts = {"epoch": trainer.current_epoch, "step": trainer.global_step}
    return plain(trainer.callback_metrics) | counts


def report_state(trainer: Any, metrics: dict[str, Any], name: str) -> None:
    """Report with all that a resume needs; rank 0 reports what several ranks write."""
    staged = trainer.strategy.broadcast(staging_directory() if trainer.is_global_zero else None)
    trainer.save_checkpoint(os.path.join(staged, name))  # returns when all ranks have written
    is_uploader = trainer.is_global_zero
    report(metrics, checkpoint=Checkpoint.from_directory(staged) if is_uploader else None)
