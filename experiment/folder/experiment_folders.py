"""Which folders on this machine are experiments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.experiment.folder.layout import HEAD, Layout


def is_experiment(folder: str) -> bool:
    """Whether the folder is an experiment's, even a damaged one whose journal has no segments."""
    layout = Layout(Path(folder))
    return any(map(os.path.lexists, (layout.journal, layout.root / HEAD, layout.lock)))


def experiments_in(place: str) -> Iterator[str]:
    """The names of the experiments in a folder, in no order. Raises OSError."""
    with os.scandir(place) as found:
        yield from (entry.name for entry in found if entry.is_dir() and is_experiment(entry.path))
