"""A process beside the controller that does one slow thing all the time."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from holdfast.runtime import guard
from holdfast.runtime.launcher import reaped
from holdfast.runtime.link import Link
from holdfast.runtime.transport import Channel
from holdfast.runtime.wire import Message


class Service:
    """A child process of the loop's thread, spoken to over a socket pair.

    It ends when the connection ends, and is killed when this process is.
    """

    def __init__(
        self,
        entry: str,
        on_message: Callable[[Message], None],
        *,
        environ: Mapping[str, str],
        inherited_fds: Sequence[int] = (),
    ) -> None:
        """Start `entry`, a `module:function` that takes a `Channel`."""
        self._on_message = on_message
        self.ended = asyncio.get_running_loop().create_future()
        ours, theirs = socket.socketpair()
        self._link = Link(ours, on_message, self._on_closed)
        command = guard.python_command(
            "holdfast.runtime.service:main", [entry, str(theirs.fileno()), str(os.getpid())]
        )
        self._process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *inherited_fds),
            start_new_session=True,
        )
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._link.is_open

    def send(self, message: Message) -> None:
        self._link.send(message)

    async def close(self) -> None:
        """End the connection and wait for the process, which gets 5 s to finish."""
        self._link.close()
        await reaped(self._process)

    def kill(self) -> None:
        self._process.kill()

    def _on_closed(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)


def main() -> None:
    """Main function of a service process."""
    entry, fd, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    guard.die_with_parent(parent)
    module, function = entry.split(":")
    from importlib import import_module

    getattr(import_module(module), function)(Channel(socket.socket(fileno=fd)))
