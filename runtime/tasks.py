"""The tasks of a run, and their deadlines.

One task group owns all tasks of a run, and no task outlives it. Deadlines begin again if this
process was suspended meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Self, TypeVar

from holdfast.late import is_late

_CHECK_S = 1.0


async def first_of(ends: Collection[asyncio.Future[Any]], within_s: float) -> bool:
    """Wait until one of these is done. Returns False if none is within `within_s` seconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + within_s
        await asyncio.wait(ends, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if any(end.done() for end in ends):
            return True
        if not is_late(due, loop.time()):
            return False


async def happens(event: asyncio.Event, within_s: float) -> bool:
    """Wait for the event. Returns False if it is not set within `within_s` seconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + within_s
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await event.wait()
        if event.is_set() or not is_late(due, loop.time()):
            return event.is_set()


class Suspension:
    """The last time that this process was suspended for `least_s` seconds or longer.

    It goes by the time of day: a monotonic clock stands still while a machine sleeps.
    """

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._due = math.inf
        self.lasted_s, self.ended = 0.0, -math.inf  # seconds, and when by the loop's clock

    async def watch(self) -> None:
        """Check until cancelled."""
        while True:
            self._due = time.time() + _CHECK_S
            await asyncio.sleep(_CHECK_S)
            self.check()

    def check(self) -> None:
        """Check now: what happened meanwhile may be handled before the next planned check."""
        late_s = time.time() - self._due
        if late_s >= self._least_s:
            self.lasted_s, self.ended = late_s, asyncio.get_running_loop().time()
            self._due = math.inf


class Rate:
    """Allows something `most` times within `within_s` seconds, for as long as it takes."""

    def __init__(self, most: int, within_s: float) -> None:
        self._most, self._within_s = most, within_s
        self._times: list[float] = []

    def allows(self, now: float) -> bool:
        """True if it may happen now; then it counts."""
        self._times = [at for at in self._times if now - at < self._within_s]
        if len(self._times) >= self._most:
            return False
        self._times.append(now)
        return True


R = TypeVar("R")
Work = Coroutine[Any, Any, R]


class TaskScope:
    """Tasks that are cancelled together.

    An exception in a task is passed to `fail` and cancels no other task: a run that has failed
    still needs them to end in order.
    """

    def __init__(
        self,
        create: Callable[[Work[Any]], asyncio.Task[Any]],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._create = create
        self._fail = fail
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_cancelled = False

    def start(self, work: Work[R]) -> asyncio.Task[R | None]:
        """Run `work` in a task, whose result is None if `work` raised."""
        task = self._own(self._perform(work))
        # If the task is cancelled before its first step, `work` was never awaited.
        task.add_done_callback(lambda _: work.close())
        return task

    def later(self, seconds: float, act: Callable[..., object], *arguments: Any) -> None:
        """Call `act` after `seconds`, unless the scope is cancelled before."""
        self.start(_later(seconds, act, arguments))

    def scope(self, fail: Callable[[BaseException], None] | None = None) -> TaskScope:
        """A scope inside this one, which can be cancelled separately."""
        return TaskScope(self._own, fail or self._fail)

    def cancel(self) -> None:
        """Cancel the tasks of this scope, and every task that is started in it later."""
        self._is_cancelled = True
        for task in list(self._tasks):
            task.cancel()

    def _own(self, work: Work[Any]) -> asyncio.Task[Any]:
        task = self._create(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._is_cancelled:
            task.cancel()
        return task

    async def _perform(self, work: Work[R]) -> R | None:
        try:
            return await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the owner decides, also if user code called exit()
            self._fail(error)
            return None


class RunTasks(TaskScope):
    """The task group of a run: `async with RunTasks() as tasks`. At its end it cancels the tasks
    that still run, and waits for them.

    The first failure is the run's `fault`, also one in a callback of the loop, after which
    something may wait for ever. `ended` is done after a failure, or when `finish` was called.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self.fault: BaseException | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        super().__init__(self._group.create_task, self.fail)

    def fail(self, error: BaseException) -> None:
        self.fault = self.fault or error
        self.finish()

    def finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def until(self, ready: asyncio.Future[R]) -> R:
        """The result of `ready`; raises the run's fault if that comes first."""
        awaited: list[asyncio.Future[Any]] = [ready, self.ended]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if self.fault is not None:
            raise self.fault
        return ready.result()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._unhandled_before = loop.get_exception_handler()
        loop.set_exception_handler(self._on_unhandled)
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()
        # Without the error, the group does not wrap it in an exception group.
        await self._group.__aexit__(None, None, None)
        asyncio.get_running_loop().set_exception_handler(self._unhandled_before)

    def _on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and "handle" in context:
            self.fail(error)
        else:  # for example of a task that was never awaited
            loop.default_exception_handler(context)


async def _later(seconds: float, act: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    await asyncio.sleep(seconds)
    act(*arguments)
