"""A worker that was killed, and whose exit nobody tells: its parent performs the order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.runtime.connection import LATE_S
from holdfast.runtime.process_exits import PATIENCE_S
from holdfast.runtime.stopped import Watched, is_stopped_now

# How long a warm parent may take to end a worker: it may import something at that moment.
_DEAF_S = 60.0


class AwaitedExit:
    """Ends the parents, and with them what they have started, where one has been stopped or
    answers nothing at all."""

    def __init__(
        self, is_gone: Callable[[], bool], parents: Callable[[], Sequence[Watched]]
    ) -> None:
        self._is_gone = is_gone
        self._parents = parents
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._arm()

    def _arm(self) -> None:
        due = self._loop.time() + PATIENCE_S
        self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        if self._is_gone():
            return
        now = self._loop.time()
        if now - due > LATE_S:  # this process was held up, and so may they have been
            self._since = now
        stopped = [one for one in self._parents() if is_stopped_now(one.pid)]
        for one in stopped:
            one.kill("it was stopped by somebody else (SIGSTOP) and could end no worker")
        if not stopped and now - self._since > _DEAF_S:
            for one in self._parents():
                one.kill(f"it did not end a worker within {_DEAF_S:g} s")
        self._arm()
