"""The faulty store disturbs exactly the chosen operations."""

from __future__ import annotations

import anyio
import pytest

from holdfast.syncer.errors import StorageRefused, StorageUnavailable
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore

pytestmark = pytest.mark.anyio


async def test_only_the_chosen_operation_fails() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, at=2)
    await store.put("a", b"1")
    with pytest.raises(StorageUnavailable):
        await store.put("b", b"2")
    await store.put("c", b"3")
    assert inner.objects == {"a": b"1", "c": b"3"}
    assert store.log == [("put", "a"), ("put", "b"), ("put", "c")]
    assert store.operations == 3


async def test_a_lasting_fault_cuts_off_all_that_follows() -> None:
    inner = MemoryStore({"a": b"1", "b": b"2", "c": b"3"})
    store = FaultyStore(inner, at=2, lasting=True, error=StorageRefused("x", "y"))
    with pytest.raises(StorageRefused):
        await store.delete(["a", "b", "c"])
    with pytest.raises(StorageRefused):
        await store.list()
    assert list(inner.objects) == ["b", "c"]


async def test_a_lost_answer_is_an_operation_that_happened() -> None:
    inner = MemoryStore()
    with pytest.raises(StorageUnavailable):
        await FaultyStore(inner, at=1, fault=Fault.LOSE_ANSWER).put("a", b"1")
    assert inner.objects == {"a": b"1"}


async def test_a_stalled_operation_waits_until_it_is_released() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, at=1, fault=Fault.STALL)
    async with anyio.create_task_group() as group:
        group.start_soon(store.put, "a", b"1")
        await store.stalled.wait()
        assert inner.objects == {}
        store.release()
    assert inner.objects == {"a": b"1"}
