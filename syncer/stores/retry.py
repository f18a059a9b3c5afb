"""Retries storage operations, with increasing pauses and a deadline."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import field
from typing import TypeVar

from holdfast.dataclass import dataclass
from holdfast.late import Timer
from holdfast.syncer.errors import StorageError, StorageUnavailable, innermost

T = TypeVar("T")

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_NOT_YET = "not done yet"
# Progress is reported at most this often.
_MOVES_EVERY_S = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Wait:
    """An operation in progress: its description, its deadline, and its last failure."""

    what: str
    timeout_s: float
    loop: asyncio.AbstractEventLoop
    deadline: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    why: str = _NOT_YET
    moved_at: float = 0.0
    moving: Callable[[], None] = lambda: None
    # How far its parts have come, by name.
    furthest: dict[str, int] = field(default_factory=dict)
    timer: Timer | None = None

    def restart(self) -> None:
        """Restart the deadline."""
        self.stop()
        self.timer = Timer(self.loop, self.timeout_s, self._expire)

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _expire(self) -> None:
        """End the operation."""
        self.deadline.reschedule(self.loop.time())

    def extend(self) -> None:
        """Restart the deadline, because there was progress. Called on the loop."""
        now = self.loop.time()
        if now - self.moved_at >= _MOVES_EVERY_S:
            self.moved_at = now
            self.moving()
            if self.timer is not None:  # otherwise it has ended
                self.restart()


_current: ContextVar[_Wait | None] = ContextVar("holdfast_wait", default=None)


def moved_on() -> None:
    """Report progress of the current operation, such as another file or page.

    Its deadline restarts. May be called in any task or thread that the operation started.
    """
    wait = _current.get()
    # Checked here, perhaps in another thread, so that 20,000 files do not wake the loop each.
    if wait is not None and wait.loop.time() - wait.moved_at >= _MOVES_EVERY_S:
        with suppress(RuntimeError):  # the loop is closed
            wait.loop.call_soon_threadsafe(wait.extend)


def moved_to(what: str, count: int) -> None:
    """Like `moved_on`, if this part of the current operation has never come so far: an attempt
    that begins again makes no progress before that."""
    wait = _current.get()
    if wait is not None and count > wait.furthest.get(what, 0):
        wait.furthest[what] = count
        moved_on()


class Turns:
    """A limit of the calls at one time. A success of one is progress for all operations that wait:
    the storage does not stand still."""

    def __init__(self, at_once: int) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._waiting: Counter[_Wait | None] = Counter()
        self._moved_at = 0.0

    async def __aenter__(self) -> None:
        wait = _current.get()
        self._waiting[wait] += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting[wait] -= 1
            if not self._waiting[wait]:
                del self._waiting[wait]

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._slots.release()
        now = time.monotonic()
        if error_type is None and now - self._moved_at >= _MOVES_EVERY_S:
            self._moved_at = now
            for wait in self._waiting:
                if wait is not None:
                    wait.extend()


class StorageRetry:
    """Retries operations until they succeed, or until `timeout_s` has passed without progress.

    `tell` is called with the first failure of an outage, which may be of many operations,
    `is_back` when all of them have succeeded, and `moving` at progress, at most once a second.
    """

    def __init__(
        self,
        *,
        timeout_s: float,
        where: str,
        tell: Callable[[str], None],
        moving: Callable[[], None] = lambda: None,
        is_back: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._moving, self._is_back = moving, is_back
        self._moved_at = time.monotonic()
        self._timeout_s = timeout_s
        self._where = where
        self._tell = tell
        # A set, because two waits may have the same description.
        self._waits: set[_Wait] = set()
        self._failing: set[_Wait] = set()
        self._notes: dict[str, str] = {}

    @property
    def unfinished(self) -> dict[str, str]:
        """The operations in progress, each with its last failure."""
        told = dict(self._notes)
        for wait in self._waits:
            if told.get(wait.what, _NOT_YET) == _NOT_YET:
                told[wait.what] = wait.why
        return told

    def moves(self) -> None:
        """Report progress outside of `until_done`."""
        now = time.monotonic()
        if now - self._moved_at >= _MOVES_EVERY_S:
            self._moved_at = now
            self._moving()

    def note(self, what: str, why: str) -> None:
        """Show the state of a long task in `unfinished`; "" removes it."""
        if why:
            self._notes[what] = why
        else:
            self._notes.pop(what, None)

    async def until_done(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry `attempt` until it succeeds. Raises a StorageError that a retry cannot help."""
        loop = asyncio.get_running_loop()
        wait = _Wait(what=what, timeout_s=self._timeout_s, loop=loop, moving=self._moving)
        wait.moved_at = loop.time()
        self._waits.add(wait)
        before = _current.set(wait)
        try:
            async with wait.deadline:
                wait.restart()
                done = await self._until_done(wait, attempt)
            if self._failing == {wait}:
                self._is_back(f"{self._where} answers again")
            return done
        except TimeoutError as error:
            if not wait.deadline.expired():  # a disk or network that gave up has raised it
                raise
            cause = f"no progress within {self._timeout_s:g} s: {wait.why}"
            raise StorageUnavailable(what, self._where, cause) from error
        finally:
            wait.stop()
            _current.reset(before)
            self._waits.discard(wait)
            self._failing.discard(wait)

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
                if not self._failing:
                    self._tell(f"{error}; retrying")
                self._failing.add(wait)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LONGEST_WAIT_S)
