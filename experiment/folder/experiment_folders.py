"""Which folders on this machine are experiments."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.experiment.folder.layout import HEAD, Layout
from holdfast.names import listed
from holdfast.syncer.files.durable import REMOVED, is_leftover

_SIMILAR = 3
_SHOWN = 10


def is_experiment(folder: str) -> bool:
    """Whether the folder is an experiment's, even a damaged one whose journal has no segments."""
    layout = Layout(Path(folder))
    return any(map(os.path.lexists, (layout.journal, layout.root / HEAD, layout.lock)))


def experiments_in(place: str) -> Iterator[str]:
    """The names of the experiments in a folder, in no order. Raises OSError."""
    with os.scandir(place) as found:
        yield from (
            entry.name
            for entry in found
            if not is_leftover(entry.name) and entry.is_dir() and is_experiment(entry.path)
        )


def similar_to(name: str, known: Iterable[str]) -> list[str]:
    """The names that are so similar that this one may be a typing mistake, the best first."""
    return difflib.get_close_matches(name, sorted(known), _SIMILAR)


def names_like(name: str, known: Iterable[str]) -> str:
    """A sentence with the names that are similar to one that does not exist, or with all."""
    names = sorted(known)
    if similar := similar_to(name, names):
        return f"Similar names: {', '.join(similar)}"
    return f"Experiments there: {listed(names, _SHOWN)}" if names else "There are none there"


def aside_of(folder: Path) -> Path:
    """The hidden name that an experiment's folder gets before it is deleted. It is the same at
    each attempt, so the next removal finds what an interrupted one has left."""
    digits = hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:16]
    return folder.with_name(f"{REMOVED}{digits}")
