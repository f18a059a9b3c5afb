"""Where workers come from: the seam, and the launcher for this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.runtime import guard
from holdfast.runtime.errors import LaunchFailed, WireError
from holdfast.runtime.link import Link
from holdfast.runtime.wire import LARGEST_FROM_WORKER, Message


class Worker(Protocol):
    """The controller's handle of one worker actor."""

    name: str
    pid: int

    def send(self, message: Message) -> None: ...

    def signal(self, signum: int) -> None:
        """SIGTERM asks it to tidy up and end, SIGKILL ends it with all that it started."""


class Listener(Protocol):
    """Who is told, on the loop, about one worker."""

    def on_message(self, message: Message) -> None: ...

    def on_exit(self, cause: str) -> None:
        """The process is gone, and with it its process group. Called once, last."""


class Launcher(Protocol):
    """Places worker processes somewhere and tells when they are gone."""

    async def open(self, entry: str, payload: bytes) -> str:
        """Get ready to launch; return a notice for the user, "" where there is none.

        Raises LaunchFailed when what the workers share cannot be loaded.
        """

    def launch(self, name: str, listener: Listener) -> Worker: ...

    async def close(self) -> None:
        """End every worker and wait until all are gone."""


class LocalLauncher:
    """Workers forked by a warm parent on this machine (see `holdfast.runtime.warm`)."""

    def __init__(self, *, environ: Mapping[str, str], inherited_fds: Sequence[int] = ()) -> None:
        """`inherited_fds` are held open by every process of this launcher until it ends."""
        self._environ = dict(environ)
        self._inherited = tuple(inherited_fds)
        self._workers: dict[str, LocalWorker] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Link | None = None
        self._loaded: asyncio.Future[Message] | None = None
        self._load: Message = []
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    async def open(self, entry: str, payload: bytes) -> str:
        self._load = ["load", entry, payload]
        self._begin()
        assert self._loaded is not None
        answer = await self._loaded
        match answer:
            case ["ready", spawns, why]:
                reason = why or "this platform makes it unsafe"
                return f"workers are not forked ({reason}): each one starts anew" if spawns else ""
            case ["refused", type_name, message, traceback]:
                raise LaunchFailed(type_name, message, traceback)
            case _:
                raise LaunchFailed("WorkerLost", f"the warm parent {answer[-1]}")

    def launch(self, name: str, listener: Listener) -> LocalWorker:
        if self._link is None or not self._link.is_open:
            self._begin()
        assert self._link is not None
        ours, theirs = socket.socketpair()
        worker = LocalWorker(name, ours, listener, self)
        self._workers[name] = worker
        self._all_gone.clear()
        self._link.send(["fork", name], [theirs.fileno()])
        theirs.close()
        return worker

    def order(self, name: str, signum: int) -> None:
        if self._link is not None:
            self._link.send(["signal", name, signum])

    async def close(self) -> None:
        for worker in list(self._workers.values()):
            worker.signal(signal.SIGKILL)
        await self._all_gone.wait()
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            await reaped(self._process)

    def _begin(self) -> None:
        """Start a warm parent: the first one, or one for another that was lost."""
        ours, theirs = socket.socketpair()
        self._loaded = asyncio.get_running_loop().create_future()
        self._link = Link(ours, self._on_message, self._on_lost)
        command = guard.python_command(
            "holdfast.runtime.warm:main", [str(theirs.fileno()), str(os.getpid())]
        )
        if self._process is not None:
            self._process.wait()
        self._process = subprocess.Popen(
            command,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *self._inherited),
            start_new_session=True,
        )
        theirs.close()
        self._link.send(self._load)

    def _on_message(self, message: Message) -> None:
        match message:
            case ["forked", name, pid]:
                worker = self._workers.get(name)
                if worker is not None:
                    worker.pid = pid
            case ["exited", name, _, status]:
                self.forget(name, guard.describe_exit(status))
            case ["ready" | "refused", *_]:
                if self._loaded is not None and not self._loaded.done():
                    self._loaded.set_result(message)
            case _:
                raise WireError(f"not a message of the warm parent: {message!r:.200}")

    def _on_lost(self, reason: str) -> None:
        """The warm parent died; the kernel kills its children, which ends their connections."""
        assert self._process is not None
        cause = f"ended{': ' + reason if reason else ''}"
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_result(["lost", cause])
        for worker in list(self._workers.values()):
            if worker.pid:
                guard.kill_group(worker.pid)
            worker.orphaned()

    def forget(self, name: str, cause: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            worker.gone(cause)
        if not self._workers:
            self._all_gone.set()


class LocalWorker:
    """A worker of a `LocalLauncher`."""

    def __init__(
        self, name: str, sock: socket.socket, listener: Listener, launcher: LocalLauncher
    ) -> None:
        self.name = name
        self.pid = 0
        self._listener = listener
        self._launcher = launcher
        self._orphaned = False
        self._link = Link(sock, listener.on_message, self._on_closed, largest=LARGEST_FROM_WORKER)

    def send(self, message: Message) -> None:
        self._link.send(message)

    def signal(self, signum: int) -> None:
        self._launcher.order(self.name, signum)

    def orphaned(self) -> None:
        """Nobody will report the exit any more: the end of the connection stands for it."""
        self._orphaned = True
        if not self._link.is_open:
            self._on_closed("")

    def gone(self, cause: str) -> None:
        self._drain()
        self._listener.on_exit(cause)

    def _drain(self) -> None:
        """Take in what the worker sent before it ended: its exit may be heard of first."""
        self._link.drain()
        self._link.close()

    def _on_closed(self, reason: str) -> None:
        if reason:
            # It sent what is no message: it can no longer be talked to.
            self.signal(signal.SIGKILL)
        if self._orphaned:
            self._launcher.forget(self.name, "was lost together with the process that started it")


async def reaped(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was told to end; after 5 s kill it."""
    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(None, process.wait, 5)
    except subprocess.TimeoutExpired:
        process.kill()
        await loop.run_in_executor(None, process.wait)
