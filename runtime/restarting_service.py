"""Restarts a service's process when it dies, unless it dies too often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.runtime import process_control
from holdfast.runtime.deadlines import Rate
from holdfast.runtime.process_exits import still_there
from holdfast.runtime.service import BackgroundService
from holdfast.runtime.stopped import Watched
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.wire import Message

# A run may take weeks: only deaths that follow each other soon show that another start is in vain.
RESTARTS, WITHIN_S = 3, 600.0


class RestartingService:
    """A service that is restarted after a failure. `ended` is done after its last end.

    Messages to a process that died are lost. `again` is called after a restart, to send the
    messages that still matter.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], BackgroundService],
        *,
        tasks: TaskScope,
        first: Sequence[Message],
        again: Callable[[], None],
        tell: Callable[[str], None],
        given_up: Callable[[str], None],
        restarts: int = RESTARTS,
        within_s: float = WITHIN_S,
    ) -> None:
        """`first`: the messages that are sent after each start. `tell` is called with a message
        for each restart, of which there are at most `restarts` within `within_s` seconds;
        `given_up` when there will be no other restart."""
        self._name = name
        self._start = start
        self._first = tuple(first)
        self._again = again
        self._tell = tell
        self._given_up = given_up
        self._restarts = Rate(restarts, within_s)
        self._closing = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._service = self._begin()
        self._watching = tasks.start(self._watch())

    @property
    def pid(self) -> int:
        return self._service.pid

    @property
    def cpu_time_s(self) -> float:
        """The CPU time that the current process has used so far."""
        return process_control.cpu_time_s(self.pid)

    def processes(self) -> list[Watched]:
        """The current process, unless it has ended."""
        if self._service.is_gone:
            return []
        return [Watched(self._service.pid, f"the {self._name}", self.replace)]

    def send(self, message: Message) -> None:
        self._service.send(message)

    async def close(self, *, has_finished: bool = False) -> None:
        """End it, wait for a limited time, and do not restart it.

        If it `has_finished` its work, it is killed silently when it takes long to exit, as on
        a busy machine: nothing is lost.
        """
        self._closing = True
        try:
            left = await self._service.close()
            survives = left == still_there(self._service.pid)
            if left and (survives or not has_finished):
                self._tell(f"the {self._name} {left}")
        finally:
            self._watching.cancel()

    def kill(self, why: str = "") -> None:
        """Kill it, and do not restart it."""
        self._closing = True
        self._service.kill(why)

    def replace(self, why: str) -> None:
        """Kill the current process; it is restarted as after any death."""
        self._service.kill(why)

    def _begin(self) -> BackgroundService:
        service = self._start()
        for message in self._first:
            service.send(message)
        return service

    async def _watch(self) -> None:
        while True:
            await self._service.ended
            how = await self._service.gone()
            if self._closing or not how:
                self.ended.set_result(how)
                return
            if not self._restarts.allows(asyncio.get_running_loop().time()):
                self.ended.set_result(how)
                self._given_up(
                    f"the {self._name} {how}; it has failed too often and is not started again"
                )
                return
            self._tell(f"the {self._name} {how}; it is started again and nothing is lost")
            try:
                self._service = self._begin()
            except OSError as error:
                self.ended.set_result(str(error))
                self._given_up(f"the {self._name} {how} and cannot be started again: {error}")
                return
            self._again()
