"""The keeper in a process of its own: orders come over a connection, and are done side by side.

told:     ["open", pickled Orders]  ["commit", trial, index, folder]
          ["discard", trial, [folder, ...]]  ["fetch", ticket, folder]
          ["publish", sealed, begins]  ["close", deadline_s]
answers:  ["opened", epoch]  ["warning", text]  ["committed", trial, index]  ["published", sealed]
          ["trouble", text]  ["fetched", ticket, error]  ["refused", text]
          ["uncommitted", trial, index, text]  ["lost", trial, index, text]
          ["failed", what, text]
          ["closed", [text, ...]]
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageError, innermost
from holdfast.syncer.keeper import Keeper
from holdfast.syncer.orders import Orders
from holdfast.syncer.owned_store import Usurped


class Wire(Protocol):
    """The connection to whoever gives the orders."""

    def send(self, message: list[Any]) -> None: ...

    def receive(self, timeout_s: float | None = None) -> list[Any] | None: ...


class KeeperProcess:
    """Takes orders from a connection and performs them side by side."""

    def __init__(self, wire: Wire, orders: Orders | None = None) -> None:
        """`orders` are those of a keeper in the process that made them; else they are sent."""
        self._wire = wire
        self._orders = orders
        self._keeper: Keeper | None = None
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._under_way: dict[asyncio.Task[None], str] = {}
        self._asked: list[tuple[int, int, tuple[str, ...]]] = []
        # By lane and what was to be done there, until that is done after all.
        self._failed: dict[tuple[str, str], str] = {}

    async def serve(self) -> None:
        """Until told to close, or nobody is there any more."""
        inbox: asyncio.Queue[list[Any] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, inbox), daemon=True).start()
        if self._orders is not None:
            self._begin(self._orders)
        while (message := await inbox.get()) is not None:
            if message[0] == "close":
                await self._close(message[1])
                return
            self._order(message)

    def _read(self, loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[Any]) -> None:
        message: list[Any] | None = []
        while message is not None:
            message = self._wire.receive()
            loop.call_soon_threadsafe(inbox.put_nowait, message)

    def _order(self, message: list[Any]) -> None:
        """One lane for each trial keeps the order of its commits; lanes run side by side."""
        match message:
            case ["open", bytes(orders)]:
                # From the controller that started this process, over a private socket pair.
                self._begin(pickle.loads(orders))
            case ["commit", str(trial_id), int(index), str(folder)]:
                keeper = self._opened()
                self._in_lane(
                    trial_id,
                    folder,
                    lambda: keeper.commit(trial_id, index, folder),
                    on_failure=lambda text: ["uncommitted", trial_id, index, text],
                )
            case ["discard", str(trial_id), list(folders)]:
                keeper = self._opened()
                # Before the lane is free: a publication that was ordered later counts on it.
                keeper.doom(folders)
                what = f"remove {folders[0]}"
                self._in_lane(trial_id, what, lambda: self._discard(trial_id, what, folders))
            case ["fetch", str(ticket), str(folder)]:
                self._in_lane(ticket, folder, lambda: self._fetch(ticket, folder))
            case ["publish", int(sealed), int(begins)]:
                self._asked.append((sealed, begins, self._opened().condemned()))
                if len(self._asked) == 1:  # else one waits already, and will take this one along
                    self._in_lane("publish", "publish the records", self._publish)
            case _:
                raise ValueError(f"not an order: {message!r:.200}")

    def _begin(self, orders: Orders) -> None:
        self._keeper = Keeper(orders, self._wire.send)
        self._in_lane("open", "open the storage", self._open)

    def _opened(self) -> Keeper:
        assert self._keeper is not None
        return self._keeper

    async def _open(self) -> None:
        try:
            epoch = await self._opened().open()
        except Exception as error:
            # Without it nothing can be kept there: said at once rather than waited for.
            self._wire.send(["refused", told(error)])
        else:
            self._wire.send(["opened", epoch])

    async def _publish(self) -> None:
        """All that was asked for until now at once: where storage is slower than the period of
        publications, they would queue up for ever."""
        sealed, begins, _ = max(self._asked)
        doomed = [folder for _, _, folders in self._asked for folder in folders]
        self._asked.clear()
        try:
            await self._opened().publish(sealed, begins, doomed)
        except BaseException:
            self._opened().doom(doomed)
            raise

    async def _discard(self, trial_id: str, what: str, folders: list[str]) -> None:
        for folder in folders:  # what is superseded is not missing in storage
            self._failed.pop((trial_id, folder), None)
        try:
            await self._opened().discard(folders)
        except Exception as error:
            # Told, and not kept: what is left over here is not missing in storage either.
            self._wire.send(["failed", what, told(error)])

    async def _fetch(self, ticket: str, folder: str) -> None:
        try:
            await self._opened().fetch(folder)
        except (NotStored, ManifestMismatch) as error:
            self._wire.send(["fetched", ticket, str(error)])
        except Exception as error:
            # It may well be there: going on without it would run epochs again for nothing.
            self._wire.send(["refused", told(error)])
        else:
            self._wire.send(["fetched", ticket, ""])

    def _in_lane(
        self,
        lane: str,
        what: str,
        work: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], list[Any]] | None = None,
    ) -> None:
        tell = on_failure or (lambda text: ["failed", what, text])
        before = self._lanes.get(lane) or self._lanes.get("open")
        task = asyncio.get_running_loop().create_task(
            self._after(before, (lane, what), work, tell)
        )
        self._lanes[lane] = task
        self._under_way[task] = what
        task.add_done_callback(lambda done: self._leave_lane(lane, done))

    def _leave_lane(self, lane: str, done: asyncio.Task[None]) -> None:
        self._under_way.pop(done)
        if self._lanes.get(lane) is done:
            del self._lanes[lane]

    async def _after(
        self,
        before: asyncio.Task[None] | None,
        key: tuple[str, str],
        work: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], list[Any]],
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await work()
        except Exception as error:  # whatever it is, somebody waits for an answer
            if isinstance(innermost(error), Usurped):
                self._wire.send(["refused", told(error)])
                return
            self._failed[key] = f"{key[1]}: {told(error)}"
            self._wire.send(on_failure(told(error)))
        else:
            self._failed.pop(key, None)

    async def _close(self, deadline_s: float) -> None:
        """Finish what is under way; at the deadline, say what is not done."""
        late: list[str] = []
        while self._lanes:
            begun = asyncio.get_running_loop().time()
            _, running = await asyncio.wait(list(self._lanes.values()), timeout=deadline_s)
            deadline_s -= asyncio.get_running_loop().time() - begun
            if running:
                late = self._late()
                break
        # Told before anything else is closed, which might take its time as well.
        self._wire.send(["closed", [*self._failed.values(), *late]])
        for task in list(self._under_way):
            task.cancel()
        if self._keeper is not None:
            await self._keeper.close()

    def _late(self) -> list[str]:
        """What is not done, with the reason where there is one."""
        reasons = self._opened().unfinished
        told = [f"{what}: {reason}" for what, reason in reasons.items()]
        waiting = [
            f"{what}: not done yet"
            for what in dict.fromkeys(self._under_way.values())
            if not any(what in known for known in reasons)
        ]
        return told + waiting


def told(error: Exception) -> str:
    """Our own errors speak for themselves; others begin with what they are."""
    inner = innermost(error)
    known = isinstance(inner, (StorageError, OSError))
    return str(inner) if known else f"{type(inner).__name__}: {inner}"


def main(wire: Wire, orders: Orders | None = None) -> None:
    """Main function of the keeper's process; or of its thread, where `orders` cannot travel."""
    import uvloop

    uvloop.run(KeeperProcess(wire, orders).serve())
