"""A cluster's client in a process of its own.

The clients of Dask and Ray hang, print, and end their process when their cluster goes. They import
hundreds of modules, and unpickle what the cluster's workers send. So each lives in a process that
the controller can kill, and talks to it in frames.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping

from holdfast.runtime.process_control import Title
from holdfast.runtime.service import Service
from holdfast.runtime.wire import Message
from holdfast.text.errors import shortened

_LAST_LINES = 12
_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 500
# It is asked this often whether it lives, and killed if it did not answer three times.
ASK_S = 10.0
_MISSED = 3


class ClientProcess:
    """Runs `entry`, a `module:function` that takes a `Channel`, and keeps its last lines of
    output. `ended` is called once, on the loop, with the cause of its end."""

    def __init__(
        self,
        entry: str,
        on_message: Callable[[Message], None],
        ended: Callable[[str], None],
        *,
        environ: Mapping[str, str],
    ) -> None:
        """Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._ended = ended
        self._why = ""
        # Its imports may take long, so it is asked once it has said something.
        self._unanswered: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lines = _LastLines()
        try:
            self._service = Service(
                entry,
                self._receive,
                environ=environ,
                inherited_fds=[self._lines.writes],
                title=Title("cluster client", short="client"),
            )
        except OSError:
            self._lines.close()
            raise
        self._service.send(["output", self._lines.writes])
        self._lines.close_writing_end()
        self._service.ended.add_done_callback(self._on_ended)
        self._ask()

    @property
    def pid(self) -> int:
        return self._service.pid

    @property
    def is_gone(self) -> bool:
        return self._service.is_gone

    def send(self, message: Message) -> None:
        self._service.send(message)

    def kill(self, why: str = "") -> None:
        """Send SIGKILL; `ended` is called soon."""
        self._why = self._why or why
        self._service.kill(why)

    async def close(self) -> str:
        """End it without a call of `ended`. Returns a warning if it had to be killed, or ""."""
        self._forget()
        self._ended = _ignore
        return await self._service.close()

    def _receive(self, message: Message) -> None:
        self._unanswered = 0
        if message != ["alive"]:
            self._on_message(message)

    def _ask(self) -> None:
        if self._unanswered is not None:
            if self._unanswered >= _MISSED:
                self.kill(f"did not answer for {_MISSED * ASK_S:g} s and was killed by holdfast")
                return
            self._unanswered += 1
            self._service.send(["alive"])
        self._timer = self._loop.call_later(ASK_S, self._ask)

    def _on_ended(self, _: object) -> None:
        self._lines.read()
        self._forget()
        ended, self._ended = self._ended, _ignore
        lines = " | ".join(self._lines.last())
        ended(
            f"{self._why or 'ended'}. Its last lines: {lines}" if lines else self._why or "ended"
        )

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._lines.close()


class _LastLines:
    """The last lines that another process writes to a pipe."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reads, self.writes = os.pipe()
        os.set_blocking(self._reads, False)
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._rest = b""
        self._loop.add_reader(self._reads, self.read)

    def last(self) -> list[str]:
        lines = [*self._lines, self._rest.decode(errors="replace")]
        return [shortened(line, _LONGEST_LINE) for line in lines if line.strip()]

    def read(self) -> None:
        """Read what has arrived."""
        while self._reads >= 0:
            try:
                data = os.read(self._reads, _CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._rest = self._rest[-_CHUNK_BYTES:]
            self._lines.extend(line.decode(errors="replace").rstrip() for line in lines)

    def close_writing_end(self) -> None:
        if self.writes >= 0:
            os.close(self.writes)
            self.writes = -1

    def close(self) -> None:
        self.close_writing_end()
        if self._reads >= 0:
            self._loop.remove_reader(self._reads)
            os.close(self._reads)
            self._reads = -1


def _ignore(_: str) -> None:
    """The end of a process that was closed."""
