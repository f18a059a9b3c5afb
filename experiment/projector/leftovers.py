"""Removes leftovers of processes of earlier runs: half-written and half-removed files, and
checkpoints that no record names.

A leftover has not changed since this run took the lock: no process of an earlier run lives once
this run has written its name into the lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.experiment.folder.layout import CHECKPOINT_PREFIX, JOURNAL, STAGING, Layout
from holdfast.syncer.checkpoint.reading import BeingRead, unread
from holdfast.syncer.files.durable import (
    put_aside,
    remove_leftovers_among,
    remove_leftovers_in,
    remove_tree,
)
from holdfast.syncer.files.tree import MANIFEST_NAME, is_ours
from holdfast.trees import delete_tree
from holdfast.trial.trial import Trial, checkpoint_number


def locked_at(layout: Layout) -> float:
    """When this run took the lock (seconds since 1970, by the file system's clock). Raises
    OSError."""
    return os.stat(layout.lock).st_mtime


def remove_leftovers(layout: Layout) -> None:
    """Remove those in the experiment's own folder and its journal's. Raises OSError."""
    before = locked_at(layout)
    for folder in (layout.root, layout.journal):
        remove_leftovers_in(folder, before)


def folders_of(layout: Layout) -> Iterator[Path]:
    """The folders in that of the experiment, except the journal's. Raises OSError."""
    found = _folders_among(_listed(layout.root))
    return (folder for folder in found if folder.name != JOURNAL)


def sweep(folder: Path, before: float, trial: Trial | None = None) -> bool:
    """Remove the leftovers in the folder of a trial; return whether none is left, or is to be
    expected from what this run still does with the trial's checkpoints.

    Checkpoints of a final `trial` that no record names go, too: their workers died before the
    report was acknowledged. Those of other trials are removed when they run again. A checkpoint
    with a manifest was recorded; only its record is lost, so it stays. Raises OSError.
    """
    if folder.is_symlink():
        return False  # nothing is removed behind a link
    found = _listed(folder)
    is_clean = remove_leftovers_among(found, before)
    if trial is not None:
        is_clean &= all(checkpoint.committed for checkpoint in trial.checkpoints)
    for below in _folders_among(found):
        if below.name == STAGING:
            is_clean &= _sweep_staging(below, before)
        elif below.name.startswith(CHECKPOINT_PREFIX):
            is_clean &= _sweep_checkpoint(below, before, trial)
    return is_clean


def _sweep_staging(folder: Path, before: float) -> bool:
    is_clean = True
    for staged in _folders_among(_listed(folder)):
        if staged.stat().st_ctime < before:
            remove_tree(staged)
        else:
            is_clean = False
    return is_clean


def _sweep_checkpoint(folder: Path, before: float, trial: Trial | None) -> bool:
    is_clean = remove_leftovers_in(folder, before)
    number = checkpoint_number(folder.name)
    if number is None or trial is None or not trial.status.is_final or not is_ours(folder):
        return is_clean
    if number >= trial.next_checkpoint:
        return (folder / MANIFEST_NAME).exists() or _remove_unless_read(folder, before)
    # Otherwise it is superseded: the uploader removes it.
    return is_clean and any(checkpoint.index == number for checkpoint in trial.checkpoints)


def _remove_unless_read(directory: Path, before: float) -> bool:
    with suppress(BeingRead, FileNotFoundError):  # the next run removes it, or it is gone
        with unread(directory):
            if directory.stat().st_ctime >= before:
                return False
            aside = put_aside(directory)
        if aside is not None:
            delete_tree(aside)
        return True
    return False


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _folders_among(entries: Iterable[os.DirEntry[str]]) -> Iterator[Path]:
    return (Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
