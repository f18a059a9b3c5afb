"""The controller's handle of a warm parent, from its start until it is reaped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from holdfast.runtime import process_control
from holdfast.runtime.connection import Connection
from holdfast.runtime.deadlines import happens
from holdfast.runtime.exit_cause import describe_code
from holdfast.runtime.holding import words
from holdfast.runtime.interpreter import start_child
from holdfast.runtime.process_exits import EXIT_DEADLINE_S, abandon, on_end
from holdfast.runtime.wire import Message


class WarmClient:
    """A warm parent's process (`holdfast.runtime.warm.parent` lists its messages).

    `loaded` is a future of its answer to "load": ["ready", ...], ["refused", ...] or, if it died
    before answering, ["lost", how].
    """

    def __init__(
        self,
        load: Message,
        on_message: Callable[[Message], None],
        on_lost: Callable[[WarmClient], None],
        *,
        environ: Mapping[str, str],
        inherited_fds: Sequence[int],
        directory: str | None = None,
        held: Sequence[str] = (),
        left: Sequence[str] = (),
    ) -> None:
        """`on_lost` is called once, when the process is dead. If this process dies, it removes the
        sockets `left`. Raises OSError."""
        self._on_message = on_message
        self._on_lost = on_lost
        self._reason = ""
        # How the process ended; "" before that.
        self.cause = ""
        self._gone = asyncio.Event()
        self.is_loading = True
        self.loaded: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._process, ours = start_child(
            "holdfast.runtime.warm.parent:main",
            [words(held), words(left)],
            environ=environ,
            inherited_fds=inherited_fds,
            directory=directory,
        )
        self._connection = Connection(ours, self._listen, self._on_closed)
        self._stop_watch = on_end(self._process, self._on_death)
        self._connection.send(load)

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        self._connection.send(message, fds)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self, why: str = "") -> None:
        """Kill the process, and the processes that the user's modules started at their import."""
        self._reason = self._reason or (why and f"was killed by holdfast: {why}")
        if not self._gone.is_set():
            process_control.kill_group(self._process.pid)

    async def close(self) -> str:
        """Order the process to end, and wait. Returns a warning if it survives SIGKILL, or ""."""
        self._connection.send(["end"])
        self._connection.close()
        if await happens(self._gone, EXIT_DEADLINE_S):
            return ""
        self.kill()
        if await happens(self._gone, EXIT_DEADLINE_S):
            return ""
        self._stop_watch()
        return f"the warm parent {abandon(self._process)}"

    def _listen(self, message: Message) -> None:
        if message[0] in ("ready", "refused"):
            self._tell_loaded(message)
        else:
            self._on_message(message)

    def _tell_loaded(self, answer: Message) -> None:
        self.is_loading = False
        if not self.loaded.done():
            self.loaded.set_result(answer)

    def _on_closed(self, reason: str) -> None:
        """Kill the process, which cannot be used without a connection. `_on_death` reports it."""
        self._reason = self._reason or reason
        self.kill()

    def _on_death(self) -> None:
        self._connection.drain()
        self._connection.close()
        self.kill()
        if self._process.poll() is None:  # a debugger keeps it from being reaped
            abandon(self._process)
        self._gone.set()
        self.cause = self._reason or describe_code(self._process.returncode)
        self._tell_loaded(["lost", self.cause])
        self._on_lost(self)
