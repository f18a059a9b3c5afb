"""Runs blocking calls of storage libraries in daemon threads.

Such a call cannot be interrupted: pyarrow retries an unreachable `gs://` for a quarter of an hour.
At exit, Python joins the threads of its own pools, however long they take, but not daemon threads.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.forked import children_end_here

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")

NAME = "holdfast-storage-"
_IDLE_S = 10.0


class _Call:
    """A call in a thread, which calls `done` when it has ended."""

    def __init__(self, perform: Callable[[], Any], done: Callable[[_Call], None]) -> None:
        self._perform = perform
        self._done = done
        self._context: Context = copy_context()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with children_end_here():  # it may be the user's filesystem
                self.value = self._context.run(self._perform)
        except BaseException as error:  # `result` raises it
            self.error = error
        self._done(self)

    def result(self) -> Any:
        try:
            if self.error is not None:
                raise self.error
            return self.value
        finally:
            self.error = None  # it would keep its frames alive, and the files that they opened


class _Pool:
    """Threads that are reused. A thread whose call hangs does not return to the pool."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[_Call]] = []
        self._count = 0
        self.busy = 0

    def begin(self, call: _Call) -> None:
        with self._lock:
            self.busy += 1
            inbox = self._idle.pop() if self._idle else None
            self._count += inbox is None
            number = self._count
        if inbox is None:
            inbox = queue.SimpleQueue()
            name = f"{NAME}{number}"
            thread = threading.Thread(target=self._serve, args=(inbox,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started
                with self._lock:
                    self.busy -= 1
                raise
        inbox.put(call)

    def _serve(self, inbox: queue.SimpleQueue[_Call]) -> None:
        while True:
            try:
                call = inbox.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                continue  # it has just been chosen for a call
            call.run()
            del call
            with self._lock:
                self.busy -= 1
                self._idle.append(inbox)


_pool = _Pool()


def busy() -> int:
    """The number of calls in progress, including abandoned ones."""
    return _pool.busy


async def call(perform: Callable[[], R]) -> R:
    """Call `perform` in a thread and wait for it. If cancelled, the thread is abandoned."""
    return await begin(perform)


def begin(perform: Callable[[], R]) -> asyncio.Future[R]:
    """Like `call`, but return a future. Cancelling it abandons the thread."""
    # Imported here, because many a process that waits for a disk has no loop.
    from asyncio import get_running_loop

    loop = get_running_loop()
    ended: asyncio.Future[R] = loop.create_future()

    def take_in(call: _Call) -> None:
        error, call.error = call.error, None
        if ended.done():
            return
        if error is None:
            ended.set_result(call.value)
        elif isinstance(error, StopIteration):  # futures do not accept it
            ended.set_exception(RuntimeError(f"the call raised {error!r}"))
        else:
            ended.set_exception(error)

    def done(call: _Call) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(take_in, call)

    _pool.begin(_Call(perform, done))
    return ended


class ThreadCall(Generic[R]):
    """A call in a thread, for callers without a loop. It can be abandoned at any time."""

    def __init__(self, perform: Callable[[], R]) -> None:
        self._ended = threading.Event()
        self._call = _Call(perform, lambda _: self._ended.set())
        _pool.begin(self._call)

    def has_ended(self, within_s: float) -> bool:
        """Wait up to `within_s` seconds; return whether the call has ended."""
        return self._ended.wait(within_s)

    def result(self) -> R:
        """The result of the call, or its exception; only after its end."""
        value: R = self._call.result()
        return value


def call_and_wait(
    perform: Callable[[], R], deadline_s: float, progress: Callable[[], object] = lambda: None
) -> R:
    """Like `call`, for callers without a loop. Raises TimeoutError if `progress()` has not changed
    for `deadline_s`."""
    before = progress()
    started = ThreadCall(perform)
    while not started.has_ended(deadline_s):
        if before == (before := progress()):
            raise TimeoutError
    return started.result()


def _forget() -> None:
    """Forget the threads in a forked child, which has only the thread that forked."""
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_forget)
