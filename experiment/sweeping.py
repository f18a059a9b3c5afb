"""Removes what processes of earlier incarnations had half written, or half removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.experiment.layout import CHECKPOINT_PREFIX, JOURNAL, STAGING, Layout
from holdfast.syncer.durable import remove_tree, sweep


def sweep_tree(layout: Layout) -> None:
    """Nobody of an earlier incarnation lives any more once this one has written its name into the
    lock: what has not changed since then is nobody's. Raises OSError."""
    before = os.stat(layout.lock).st_mtime
    sweep(layout.root, before)
    for folder in _folders(layout.root):
        sweep(folder, before)
        if folder.name == JOURNAL:
            continue
        for below in _folders(folder):
            if below.name.startswith(CHECKPOINT_PREFIX):
                sweep(below, before)
            elif below.name == STAGING:
                _sweep_staging(below, before)


def _sweep_staging(folder: Path, before: float) -> None:
    for staged in _folders(folder):
        if staged.stat().st_ctime < before:
            remove_tree(staged)


def _folders(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        found = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    yield from found
