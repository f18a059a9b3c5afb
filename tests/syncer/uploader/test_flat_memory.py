"""The uploader uses no more memory after many checkpoints than after few, whatever its storage
does."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.syncer.stores import retry
from tests.rig.storage.keeping import Held, run
from tests.rig.storage.stores import MemoryStore, Place, UnsteadyStore

_TRIALS = 10
# The published pieces differ from one point to the next.
_SLACK = 8


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(retry, "_LONGEST_WAIT_S", 0.01)


def hold(root: Path, location: object, checkpoints: int) -> tuple[Held, Held]:
    """The memory in the middle and at the end."""
    held: list[Held] = []
    run(root, location, held.append, trials=_TRIALS, checkpoints=checkpoints, points=2)
    middle, end = held
    assert (middle.checkpoints, end.checkpoints) == (checkpoints // 2, checkpoints)
    return middle, end


def grown(middle: Held, end: Held) -> dict[str, tuple[int, int]]:
    """The containers with more entries at the end."""
    return {
        place: (middle.entries.get(place, 0), count)
        for place, count in end.entries.items()
        if count > middle.entries.get(place, 0) + _SLACK
    }


def test_what_the_uploader_knows_does_not_grow_with_the_checkpoints(tmp_path: Path) -> None:
    store = UnsteadyStore(MemoryStore(), every=31)
    middle, end = hold(tmp_path, Place(store), 400)
    assert grown(middle, end) == {}
    # A thread that has just finished may not have ended yet.
    assert end.tasks <= middle.tasks + _SLACK
    assert end.files == middle.files
    assert end.descriptors <= middle.descriptors + 2
