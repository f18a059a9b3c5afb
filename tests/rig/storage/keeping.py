"""The uploader with many checkpoints, and its memory as their number grows."""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any, cast

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.journal.journal import Journal
from holdfast.syncer.stores.location import Location
from holdfast.syncer.uploader.process import UploaderProcess

_CONTAINERS = (dict, list, set, frozenset, tuple, deque)
# After this many commits everything is published, as a controller does from time to time.
_PUBLISH_EVERY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The memory of the uploader's process after this many checkpoints, when it is idle.

    `entries` counts the entries of the containers of the uploader and its parts, `blocks` Python's
    allocations.
    """

    checkpoints: int
    rss_kib: int
    blocks: int
    descriptors: int
    sockets: int
    threads: int
    tasks: int
    files: int
    entries: Mapping[str, int]

    def told(self) -> dict[str, Any]:
        return {**asdict(self), "entries": dict(self.entries)}


class Orderer:
    """The controller's side of the connection: it waits for the answers to commits."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._waited: dict[tuple[Any, ...], asyncio.Future[list[Any]]] = {}
        self.troubles = 0

    def order(self, *message: Any) -> None:
        self._orders.put(list(message))

    async def ask(self, answer: tuple[Any, ...], *message: Any) -> list[Any]:
        """Send an order, and wait for the answer with this name."""
        told: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waited[answer] = told
        if message:
            self.order(*message)
        return await told

    def send(self, message: list[Any]) -> None:
        self.troubles += message[0] == "trouble"
        if message[0] in {"uncommitted", "lost", "refused", "failed"}:
            for told in self._waited.values():
                told.set_exception(RuntimeError(f"the uploader says: {message}"))
            self._waited.clear()
            return
        for length in (1, 3):
            if awaited := self._waited.pop(tuple(message[:length]), None):
                awaited.set_result(message)

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        return self._orders.get()


class Keeping:
    """An experiment of `trials` whose uploader commits, supersedes and publishes."""

    def __init__(self, root: Path, location: Location, *, trials: int) -> None:
        self.root = root
        self._trials = [f"trial_{number:03}" for number in range(trials)]
        self._journal = Journal(root / "journal")
        self.orderer = Orderer()
        self.process = UploaderProcess(
            self.orderer,
            UploaderSettings(
                root=root,
                storage=location,
                experiment_id="kept",
                journal="journal",
                head="head.json",
                is_record=lambda key: False,
                is_checkpoint=lambda name: name.startswith("checkpoint_"),
                private=("journal",),
            ),
        )
        self._done = 0

    async def perform(self, checkpoints: int, points: int, tell: Callable[[Held], None]) -> None:
        """Make this many checkpoints; `tell` gets the memory at several points."""
        serving = asyncio.create_task(self.process.serve())
        await self.orderer.ask(("opened",))
        each = checkpoints // points // len(self._trials)
        for point in range(points):
            async with asyncio.TaskGroup() as tasks:
                for trial in self._trials:
                    tasks.create_task(self._train(trial, point * each, each))
            await self._publish()
            await self._publish()  # only this one may remove what the one before did not name
            await self._settle()
            tell(self._held())
        await self.orderer.ask(("closed",), "close", 60.0, False)
        await serving
        self._journal.abandon()

    async def _train(self, trial: str, start: int, count: int) -> None:
        for index in range(start, start + count):
            folder = f"{trial}/checkpoint_{index:06}"
            await asyncio.to_thread(_stage, self.root / folder, f"{trial} {index}")
            await self.orderer.ask(
                ("committed", trial, index), "commit", trial, index, folder, 1, 0.5, False
            )
            self._done += 1
            if index:
                self.orderer.order("discard", trial, [f"{trial}/checkpoint_{index - 1:06}"])
            if self._done % _PUBLISH_EVERY == 0:
                self._journal.append([b"a record"])
                self.orderer.order("publish", *astuple(self._journal.position), 0)

    async def _publish(self) -> None:
        self._journal.append([b"a record"])
        end = astuple(self._journal.position)
        await self.orderer.ask(("published", *end), "publish", *end, 0)

    async def _settle(self) -> None:
        while tasks := list(self.process.under_way):
            await asyncio.wait(tasks)

    def _held(self) -> Held:
        gc.collect()
        descriptors = list(_descriptors())
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return Held(
            checkpoints=self._done,
            rss_kib=pages * os.sysconf("SC_PAGE_SIZE") >> 10,
            blocks=sys.getallocatedblocks(),
            descriptors=len(descriptors),
            sockets=open_sockets(),
            threads=threading.active_count(),
            tasks=len(asyncio.all_tasks()),
            files=sum(len(files) for _, _, files in os.walk(self.root)),
            entries=entries(self.process),
        )


def _stage(directory: Path, weights: str) -> None:
    """One file that differs each time, and one that never does."""
    directory.mkdir(parents=True)
    (directory / "weights").write_text(weights)
    (directory / "settings").write_text(directory.parent.name)


def open_sockets() -> int:
    """How many sockets this process has open."""
    gc.collect()
    return sum(target.startswith("socket:") for target in _descriptors())


def _descriptors() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            yield os.readlink(f"/proc/self/fd/{name}")


def entries(root: object) -> dict[str, int]:
    """The number of entries of holdfast's containers, by their place."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [(type(root).__name__, root)]
    while waiting:
        place, thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, _CONTAINERS):
            found[place] += len(thing)
            waiting += [(f"{place}[]", inner) for inner in _inside(thing)]
        elif type(thing).__module__.startswith("holdfast.syncer"):
            name = type(thing).__name__
            waiting += [(f"{name}.{key}", value) for key, value in _fields(thing)]
    return dict(found)


def _inside(container: Any) -> list[object]:
    if isinstance(container, Mapping):
        return [*container.keys(), *container.values()]
    return list(container)


def _fields(thing: object) -> Iterator[tuple[str, object]]:
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, name):
                yield name, getattr(thing, name)


def run(
    root: Path,
    location: object,
    tell: Callable[[Held], None],
    *,
    trials: int,
    checkpoints: int,
    points: int,
) -> None:
    """Run it in its own loop, as in the uploader's process."""
    import uvloop

    keeping = Keeping(root, cast(Location, location), trials=trials)
    uvloop.run(keeping.perform(checkpoints, points, tell))
