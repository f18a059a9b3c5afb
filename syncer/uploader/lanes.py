"""Performs orders in lanes: lanes run in parallel, and the orders of one lane in sequence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Self

from holdfast.syncer.errors import StorageError, innermost
from holdfast.syncer.stores.owned_store import ClaimLost

# Every other lane waits for it.
OPEN = "open"


class Lanes:
    """A task group: at its end, `async with lanes` cancels the orders that are not done."""

    def __init__(self, send: Callable[[list[Any]], None]) -> None:
        """`send` sends a message to the controller."""
        self._send = send
        self._group = asyncio.TaskGroup()
        self._last: dict[str, asyncio.Task[None]] = {}
        # The orders in progress, each with what storage will lack without it; "" for a removal.
        self._under_way: dict[asyncio.Task[None], str] = {}
        # The failures, by lane and order, until the order succeeds.
        self.failed: dict[tuple[str, str], str] = {}

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._under_way):
            task.cancel()
        await self._group.__aexit__(None, None, None)  # without the error, it does not wrap it

    @property
    def under_way(self) -> Collection[asyncio.Task[None]]:
        """The orders that are being performed."""
        return self._under_way.keys()

    @property
    def needed(self) -> list[str]:
        """What storage would lack without the orders in progress, once each."""
        return [what for what in dict.fromkeys(self._under_way.values()) if what]

    def newest(self, lane: str) -> asyncio.Task[None] | None:
        """The lane's last order, if it is in progress."""
        return self._last.get(lane)

    def start(
        self,
        lane: str,
        what: str,
        work: Callable[[], Awaitable[None]],
        on_failure: Callable[[str], list[Any]] | None = None,
        *,
        is_needed: bool = True,
    ) -> None:
        """Perform `work` after the lane's earlier orders. `on_failure` makes a message from the
        reason; by default, one that names `what`."""
        tell = on_failure or (lambda text: ["failed", what, text])
        before = self._last.get(lane) or self._last.get(OPEN)
        task = self._group.create_task(self._after(before, (lane, what), work, tell))
        self._last[lane] = task
        self._under_way[task] = what if is_needed else ""
        task.add_done_callback(lambda done: self._leave(lane, done))

    def start_asked(
        self,
        ticket: str,
        what: str,
        ask: Callable[[], Awaitable[list[Any]]],
        *,
        lane: str | None = None,
    ) -> None:
        """Start an order whose answer the start of a trial waits for, by default in a lane of its
        own."""
        self.start(lane or ticket, what, lambda: self._answer(ticket, ask))

    async def _answer(self, ticket: str, ask: Callable[[], Awaitable[list[Any]]]) -> None:
        """Send the answer, or that storage has not answered, or that another incarnation owns it.

        Storage may have a checkpoint, without which the trial would repeat epochs unnecessarily,
        or artifacts, which the trial would create anew and then replace in storage.
        """
        try:
            answer = await ask()
        except Exception as error:
            is_lost = isinstance(innermost(error), ClaimLost)
            answer = ["refused"] if is_lost else ["unanswered", ticket]
            answer.append(reason_of(error))
        self._send(answer)

    async def settle(self, until: float, is_busy: Callable[[], bool]) -> None:
        """Wait while `is_busy()`, at most until the time `until`."""
        loop = asyncio.get_running_loop()
        while is_busy() and (left_s := until - loop.time()) > 0:
            tasks = list(self._under_way)
            await asyncio.wait(tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    def _leave(self, lane: str, done: asyncio.Task[None]) -> None:
        self._under_way.pop(done)
        if self._last.get(lane) is done:
            del self._last[lane]

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
        except Exception as error:  # the controller waits for an answer
            if isinstance(innermost(error), ClaimLost):
                self._send(["refused", reason_of(error)])
                return
            self.failed[key] = f"{key[1]}: {reason_of(error)}"
            self._send(on_failure(reason_of(error)))
        else:
            self.failed.pop(key, None)


def reason_of(error: Exception) -> str:
    """The text of an error; it begins with the type unless the error is holdfast's own."""
    inner = innermost(error)
    known = isinstance(inner, (StorageError, OSError))
    return str(inner) if known else f"{type(inner).__name__}: {inner}"
