"""The uploader uses no more memory after many checkpoints than after few, whatever its storage
does."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.syncer.stores import retry
from holdfast.syncer.stores.location import Location
from tests.rig.faults.fault_proxy import FaultProxy
from tests.rig.faults.ills import AtRandom, Ill
from tests.rig.storage.keeping import Held, open_sockets, run
from tests.rig.storage.s3_server import S3Server
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


@pytest.mark.server
def test_connections_that_broke_are_closed_and_no_more_are_opened_over_time(
    tmp_path: Path, moto: S3Server
) -> None:
    ills = (Ill.RESET, Ill.ANSWER_LOST, Ill.SLOW_DOWN, Ill.TRUNCATED, Ill.PHANTOM)
    of_others = open_sockets()
    proxy = FaultProxy(moto.endpoint, AtRandom(ills=ills, probability=0.05, seed=17))
    try:
        uri = moto.uri("bucket/keeping").replace(moto.endpoint, proxy.endpoint)
        middle, end = hold(tmp_path, Location.resolve(uri, None, {}), 80)
    finally:
        proxy.close()
    assert proxy.struck
    assert grown(middle, end) == {}
    assert end.tasks == middle.tasks
    # 16 of our own that wait for requests, 32 of botocore's, and two of the loop; one that broke
    # may not be closed yet.
    assert end.sockets - of_others <= 50 + _SLACK
