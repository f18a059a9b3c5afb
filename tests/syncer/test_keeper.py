"""The keeper's orders, given as the controller gives them, over stores in memory."""

from __future__ import annotations

import asyncio
import json
import pickle
import queue
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.syncer.journal import Journal, segment_name
from holdfast.syncer.keeper import Orders
from holdfast.syncer.keeper_process import KeeperProcess
from holdfast.syncer.location import Location
from holdfast.syncer.store import Store
from holdfast.testing.stores import Fault, FaultyStore, MemoryStore

pytestmark = pytest.mark.anyio

FOLDER = "trial/checkpoint_000000"


class Place:
    """Stands for a `Location` whose store is at hand."""

    public = "memory"

    def __init__(self, store: Store) -> None:
        self._store = store

    def open_store(self) -> Store:
        return self._store


class Desk:
    """The controller's side: orders go out, and answers are waited for."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._answers: asyncio.Queue[list[Any]] = asyncio.Queue()

    def order(self, *message: Any) -> None:
        self._orders.put(list(message))

    def hang_up(self) -> None:
        self._orders.put(None)

    def send(self, message: list[Any]) -> None:
        self._answers.put_nowait(message)

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        return self._orders.get()

    async def answer(self, name: str) -> list[Any]:
        async with asyncio.timeout(30):
            while (message := await self._answers.get())[0] != name:
                continue
        return message


class Kept:
    """An experiment's directory with one checkpoint, the storage beside it and the keeper."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.desk = Desk()
        self.memory = MemoryStore()
        self.journal = Journal(root / "journal")
        (root / FOLDER).mkdir(parents=True)
        (root / FOLDER / "model").write_bytes(b"weights")

    def orders(self, store: Store) -> Orders:
        return Orders(
            root=self.root,
            storage=cast(Location, Place(store)),
            experiment_id="an experiment",
            journal="journal",
            head="head.json",
            is_record=lambda key: False,
            checkpoint_prefix="checkpoint_",
            private=("journal",),
        )

    def seal(self) -> int:
        self.journal.append([b"a record"])
        return self.journal.rotate()

    def named(self) -> list[str]:
        """The segments that the head in storage names."""
        return [part["name"] for part in json.loads(self.memory.objects["head.json"])["segments"]]

    def objects_of(self, folder: str) -> list[str]:
        return [key for key in self.memory.objects if key.startswith(f"{folder}/")]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.fixture
async def keeping(kept: Kept) -> AsyncIterator[Callable[[Store], Kept]]:
    """Call it with a store, and the keeper works over it until the test ends."""
    tasks = []

    def begin(store: Store) -> Kept:
        process = KeeperProcess(kept.desk, kept.orders(store))
        tasks.append(asyncio.get_running_loop().create_task(process.serve()))
        return kept

    yield begin
    kept.desk.hang_up()
    await asyncio.gather(*tasks)
    kept.journal.close()


async def test_a_committed_checkpoint_is_in_storage_and_its_manifest_came_last(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    store = FaultyStore(kept.memory)
    keeping(store)
    kept.desk.order("commit", "t1", 0, FOLDER)
    assert await kept.desk.answer("committed") == ["committed", "t1", 0]
    put = [key for operation, key in store.log if operation == "put" and key.startswith(FOLDER)]
    assert put == [f"{FOLDER}/model", f"{FOLDER}/.holdfast.json"]


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_checkpoint_that_is_gone_here_is_committed_if_it_is_whole_in_storage(
    kept: Kept, keeping: Callable[[Store], Kept], is_whole: bool
) -> None:
    keeping(kept.memory)
    kept.memory.objects[f"{FOLDER}/model"] = b"weights"
    if is_whole:
        kept.memory.objects[f"{FOLDER}/.holdfast.json"] = b"{}"
    (kept.root / FOLDER / "model").unlink()
    (kept.root / FOLDER).rmdir()
    kept.desk.order("commit", "t1", 0, FOLDER)
    answer = await kept.desk.answer("committed" if is_whole else "lost")
    assert answer[1:3] == ["t1", 0]


async def test_a_publication_removes_what_was_discarded_before_it_was_ordered(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    keeping(kept.memory)
    kept.desk.order("commit", "t1", 0, FOLDER)
    await kept.desk.answer("committed")
    kept.desk.order("discard", "t1", [FOLDER])
    sealed = kept.seal()
    kept.desk.order("publish", sealed, 0)
    assert await kept.desk.answer("published") == ["published", sealed]
    assert kept.objects_of(FOLDER) == []
    kept.desk.order("close", 30.0)
    assert await kept.desk.answer("closed") == ["closed", []]
    assert not (kept.root / FOLDER).exists()


async def test_what_is_discarded_after_a_publication_was_ordered_outlives_it(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    """Its records still name it, also where it had to wait for the publication before."""
    counted = FaultyStore(kept.memory)
    keeping(counted)
    kept.desk.order("commit", "t1", 0, FOLDER)
    await kept.desk.answer("committed")
    counted.disturb(at=counted.operations + 1, fault=Fault.STALL)
    kept.desk.order("publish", kept.seal(), 0)
    await counted.stalled.wait()
    second = kept.seal()
    kept.desk.order("publish", second, 0)
    kept.desk.order("discard", "t1", [FOLDER])
    counted.release()
    while await kept.desk.answer("published") != ["published", second]:
        continue
    assert kept.named() == [segment_name(0), segment_name(1)]
    assert f"{FOLDER}/.holdfast.json" in kept.objects_of(FOLDER)

    kept.desk.order("publish", kept.seal(), 0)
    await kept.desk.answer("published")
    assert kept.objects_of(FOLDER) == []


async def test_what_a_failed_publication_was_to_remove_is_removed_by_the_next(
    kept: Kept, keeping: Callable[[Store], Kept]
) -> None:
    keeping(kept.memory)
    kept.desk.order("commit", "t1", 0, FOLDER)
    await kept.desk.answer("committed")
    kept.desk.order("discard", "t1", [FOLDER])
    missing = kept.seal() + 1
    kept.desk.order("publish", missing, 0)
    (kept.root / "journal" / segment_name(missing)).unlink()
    await kept.desk.answer("failed")
    assert kept.objects_of(FOLDER) != []
    kept.desk.order("publish", 0, 0)
    await kept.desk.answer("published")
    assert kept.objects_of(FOLDER) == []


def test_orders_travel_to_the_process() -> None:
    orders = Orders(
        root=Path("/somewhere"),
        storage=Location.resolve("/elsewhere", None, {}),
        experiment_id="an experiment",
        journal="journal",
        head="head.json",
        is_record=str.isidentifier,
        checkpoint_prefix="checkpoint_",
    )
    assert pickle.loads(pickle.dumps(orders)) == orders
