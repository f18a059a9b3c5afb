"""Removes leftovers of processes of earlier runs: half-written and half-removed files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.experiment.folder.layout import CHECKPOINT_PREFIX, JOURNAL, STAGING, Layout
from holdfast.syncer.checkpoint.reading import BeingRead, unread
from holdfast.syncer.files.durable import delete_tree, put_aside, remove_leftovers_in, remove_tree
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.trial.checkpoint import checkpoint_number
from holdfast.trial.trial import Trial


def remove_leftovers(layout: Layout) -> None:
    """Remove leftovers that have not changed since this run took the lock. Raises OSError.

    No process of an earlier run lives once this run has written its name into the lock.
    """
    before = os.stat(layout.lock).st_mtime
    remove_leftovers_in(layout.root, before)
    for folder in _folders(layout.root):
        remove_leftovers_in(folder, before)
        if folder.name == JOURNAL:
            continue
        for below in _folders(folder):
            if below.name.startswith(CHECKPOINT_PREFIX):
                remove_leftovers_in(below, before)
            elif below.name == STAGING:
                _remove_old_staging(below, before)


def _remove_old_staging(folder: Path, before: float) -> None:
    for staged in _folders(folder):
        if staged.stat().st_ctime < before:
            remove_tree(staged)


def _folders(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        found = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    yield from found


def remove_unrecorded_checkpoints(layout: Layout, trials: Iterable[Trial]) -> None:
    """Remove checkpoints of final trials that no record names: their workers died before the
    report was acknowledged.

    Those of other trials are removed when they run again. A checkpoint with a manifest was
    recorded; only its record is lost, so it stays. Raises OSError.
    """
    before = os.stat(layout.lock).st_mtime
    for trial in trials:
        folder = layout.trial(trial.spec)
        if not trial.status.is_final or not folder.is_dir():
            continue
        for found in _folders(folder):
            number = checkpoint_number(found.name)
            if number is None or number < trial.next_checkpoint:
                continue
            if not (found / MANIFEST_NAME).exists():
                _remove_unless_read(found, before)


def _remove_unless_read(directory: Path, before: float) -> None:
    with suppress(BeingRead, FileNotFoundError):  # the next run removes it, or it is gone
        with unread(directory):
            if directory.stat().st_ctime >= before:
                return
            aside = put_aside(directory)
        if aside is not None:
            delete_tree(aside)
