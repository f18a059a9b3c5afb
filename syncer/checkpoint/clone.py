"""Copies a checkpoint for a clone of its trial."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.syncer.checkpoint.staging import Staged, copy_tree
from holdfast.syncer.files.durable import remove_tree
from holdfast.syncer.files.tree import is_ours, mark_staged


def copy_checkpoint(source: Path, copy: Path) -> Staged:
    """Copy a checkpoint's files to a new directory; they share blocks if the file system can.

    Raises StorageError or OSError, and then leaves nothing.
    """
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        staged = copy_tree(source, copy)
        mark_staged(copy)
        return staged
    except BaseException:
        remove_tree(copy)
        raise


def put_in_place(copy: Path, target: Path) -> None:
    """Move the copy to `target`, replacing what an attempt left there without a report. Raises
    OSError, also if the script has a folder of its own there."""
    if is_ours(target):
        remove_tree(target)
    os.rename(copy, target)
