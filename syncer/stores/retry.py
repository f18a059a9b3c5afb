"""Trying again what storage did not do: longer and longer waits, and an end to them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import field
from typing import TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageError, StorageUnavailable, innermost

T = TypeVar("T")

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_NOT_YET = "not done yet"
# Work that moves on by itself says so this often at most.
_MOVES_EVERY_S = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Wait:
    """One thing that is being done: its words, its deadline, and how its last try ended."""

    what: str
    timeout_s: float
    loop: asyncio.AbstractEventLoop
    deadline: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    why: str = _NOT_YET
    moved_at: float = 0.0
    moving: Callable[[], None] = lambda: None

    def extend(self) -> None:
        """It may take its whole time again from now on; on the loop."""
        now = self.loop.time()
        if now - self.moved_at >= _MOVES_EVERY_S:
            self.moved_at = now
            self.moving()
            with suppress(RuntimeError):  # it has ended meanwhile, or its time was up
                self.deadline.reschedule(now + self.timeout_s)


_current: ContextVar[_Wait | None] = ContextVar("holdfast_wait", default=None)


def moved_on() -> None:
    """Say that what is being done makes progress: one more file, one more page.

    Its deadline counts from here. May be called in any task or thread that the attempt began.
    """
    wait = _current.get()
    # Read in a thread of its own, too: 20,000 files need not wake the loop 20,000 times.
    if wait is not None and wait.loop.time() - wait.moved_at >= _MOVES_EVERY_S:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            wait.loop.call_soon_threadsafe(wait.extend)


class Furthest:
    """Progress of work that may begin again: only what goes further than before counts, so that
    what fails again and again comes to its end."""

    def __init__(self) -> None:
        self._furthest = 0

    def reached(self, count: int) -> None:
        if count > self._furthest:
            self._furthest = count
            moved_on()


class StorageRetry:
    """Tries each thing until it was done, or until `timeout_s` passed without progress.

    `tell` hears of the first failure of each, `moving` of progress, once a second at most.
    """

    def __init__(
        self,
        *,
        timeout_s: float,
        where: str,
        tell: Callable[[str], None],
        moving: Callable[[], None] = lambda: None,
    ) -> None:
        self._moving = moving
        self._moved_at = time.monotonic()
        self._timeout_s = timeout_s
        self._where = where
        self._tell = tell
        # Two waits may have the same words: two publications list the same folder.
        self._waits: set[_Wait] = set()
        self._notes: dict[str, str] = {}

    @property
    def unfinished(self) -> dict[str, str]:
        """What is not done yet, and why: the words of its last failure, if there was one."""
        told = dict(self._notes)
        for wait in self._waits:
            if told.get(wait.what, _NOT_YET) == _NOT_YET:
                told[wait.what] = wait.why
        return told

    def moves(self) -> None:
        """Progress outside of any wait: one of many things was done."""
        now = time.monotonic()
        if now - self._moved_at >= _MOVES_EVERY_S:
            self._moved_at = now
            self._moving()

    def note(self, what: str, why: str) -> None:
        """Say in `unfinished` how far a long task has come; "" when it has ended."""
        if why:
            self._notes[what] = why
        else:
            self._notes.pop(what, None)

    async def until_done(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it works; raises what cannot work later. Raises StorageError."""
        loop = asyncio.get_running_loop()
        wait = _Wait(what=what, timeout_s=self._timeout_s, loop=loop, moving=self._moving)
        wait.moved_at = loop.time()
        self._waits.add(wait)
        before = _current.set(wait)
        try:
            async with wait.deadline:
                wait.deadline.reschedule(loop.time() + self._timeout_s)
                return await self._until_done(wait, attempt)
        except TimeoutError as error:
            cause = f"no progress within {self._timeout_s:g} s: {wait.why}"
            raise StorageUnavailable(what, self._where, cause) from error
        finally:
            _current.reset(before)
            self._waits.discard(wait)

    async def _until_done(self, wait: _Wait, attempt: Callable[[], Awaitable[T]]) -> T:
        pause_s = _FIRST_WAIT_S
        while True:
            try:
                return await attempt()
            except (StorageError, BaseExceptionGroup) as group:
                error = innermost(group)
                if not isinstance(error, StorageUnavailable):
                    raise error from group
                wait.why = str(error)
                if pause_s == _FIRST_WAIT_S:
                    self._tell(f"{error}; it is tried again")
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LONGEST_WAIT_S)
