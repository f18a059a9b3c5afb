"""Copies the checkpoint that a clone starts from, so that it becomes one of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from holdfast.syncer.checkpoint.staging import Staged, copy_tree
from holdfast.syncer.files.durable import remove_tree, unique
from holdfast.trial.checkpoint import CheckpointRecord, CheckpointUploadMode


def copy_checkpoint(source: Path, staging_root: Path) -> tuple[Path, Staged]:
    """Copy a checkpoint's files to a new directory; they share blocks if the file system can.

    Raises StorageError or OSError, and then leaves nothing.
    """
    copy = staging_root / unique()
    staging_root.mkdir(parents=True, exist_ok=True)
    try:
        return copy, copy_tree(source, copy)
    except BaseException:
        remove_tree(copy)
        raise


def put_in_place(copy: Path, target: Path) -> None:
    """Move the copy to `target`, replacing what an attempt left there without a report. Raises
    OSError."""
    remove_tree(target)
    os.rename(copy, target)


def record_of(
    known: CheckpointRecord, staged: Staged, *, index: int, attempt: int
) -> CheckpointRecord:
    """The record of the copy: like that of the original, but not committed yet."""
    stays = CheckpointUploadMode.NO_UPLOAD if known.stays_here else CheckpointUploadMode.ASYNC
    return replace(
        known,
        index=index,
        attempt=attempt,
        files=staged.files,
        size_bytes=staged.bytes,
        committed=False,
        upload=stays,
    )
