"""The agent: runs workers on its node for the controller, as long as their connection lasts.

It needs nothing but its invitation. If the connection ends without an order, the workers may run
elsewhere soon: the agent kills them and ends, within a second.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from holdfast.compat import ray_path
from holdfast.runtime.connection import Link, end_if_silent
from holdfast.runtime.engines.engine import LEAVES_IN_S
from holdfast.runtime.errors import LaunchFailed, RuntimeFault, Unheard, WireError
from holdfast.runtime.fleet.delivery import Delivered, InThread, at_once
from holdfast.runtime.fleet.facts import (
    NODE_DIR,
    PROTOCOL,
    HostFacts,
    disk_free_bytes,
    memory_bytes,
)
from holdfast.runtime.fleet.handshake import Invited, StdioCall, TlsCall, python_version
from holdfast.runtime.fleet.messages import (
    Answer,
    Heartbeat,
    Hello,
    Leaving,
    Loaded,
    Unloadable,
    Warned,
    WorkerExit,
    WorkerPid,
    WorkerUsed,
)
from holdfast.runtime.launcher import ExitCause, Grant, WorkerHandle
from holdfast.runtime.local_launcher import LocalLauncher
from holdfast.runtime.process_exits import StoppedWatch, Watched
from holdfast.runtime.tasks import RunTasks, TaskScope
from holdfast.runtime.usage.used import Used
from holdfast.runtime.wire import Message
from holdfast.schema import to_fields, to_row
from holdfast.version import VERSION


class NodeService(Protocol):
    """Called on the agent's loop. It answers through the function that it was made with."""

    def load(self, settings: bytes) -> None:
        """Called once, before the first order. `settings` come from the controller, unchanged."""

    def order(self, message: Message) -> None: ...

    def processes(self) -> Sequence[Watched]:
        """Its processes that are alive."""

    def kill(self) -> None:
        """Kill its processes, without waiting."""

    async def gone(self) -> None:
        """Wait for processes that were killed: one may still be in a call that writes a file."""

    async def close(self, deadline_s: float) -> None:
        """Finish what was ordered, for at most `deadline_s` seconds, and end."""


# Makes the service of an agent from: the tasks of the agent, its scratch folder, and the function
# that sends an answer to the controller.
MakeService = Callable[[TaskScope, str, Callable[[Message], None]], NodeService]


# The time that a node has after SIGTERM, if its engine does not say.
_LEAVES_IN_S = 30.0
# Until the controller has said how often.
_WELCOME_S = 60.0
_UNPACKED_S = 600.0
_KILLED_S = 0.7
_LAST_S = 1.0


async def run_agent(
    invited: Invited,
    called: StdioCall | TlsCall,
    folder: str,
    facts: HostFacts,
    make_service: MakeService,
    in_thread: InThread = at_once,
) -> str:
    """Serve the controller until the connection ends. Returns why; "" if the controller ordered
    the end. Raises Unheard."""
    async with RunTasks() as tasks:
        agent = Agent(called.link(), folder, tasks, make_service, in_thread)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.leave, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, agent.on_closed, "it was hung up (SIGHUP)")
        agent.introduce(invited, called.address, facts)
        try:
            return await tasks.until(agent.over)
        finally:
            await agent.end_now()


class Agent:
    """One agent. Its workers are those of a `LocalLauncher`."""

    def __init__(
        self,
        link: Link,
        folder: str,
        tasks: RunTasks,
        make_service: MakeService,
        in_thread: InThread,
    ) -> None:
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._link = link
        self._folder = folder
        self._tasks = tasks
        self._delivered = Delivered(folder)
        self._in_thread = in_thread
        self._launcher: LocalLauncher | None = None
        self._workers: dict[str, WorkerHandle] = {}
        self._is_leaving = self._is_ending = False
        self._service = make_service(tasks, folder, self.answer)

    def introduce(self, invited: Invited, address: str, facts: HostFacts) -> None:
        self._link.begin(self._on_message, self.on_closed)
        hello = Hello(
            protocol=PROTOCOL,
            version=VERSION,
            python=python_version(),
            ticket=invited.ticket,
            token=invited.token,
            hostname=socket.gethostname(),
            address=address,
            pid=os.getpid(),
            resources={"memory": float(memory_bytes()), **facts.resources},
            gpus=list(facts.gpus),
            disk_free_bytes=disk_free_bytes(self._folder),
        )
        self._link.send(["hello", to_fields(hello)])
        self._watching = self._tasks.start(end_if_silent(self._link, _WELCOME_S, forgives=False))

    def answer(self, message: Message) -> None:
        """Send an answer of the service."""
        self._link.send(to_row(Answer(message=message)))

    def leave(self, why: str) -> None:
        """The node will be taken away: the controller decides what happens until then."""
        if not self._is_leaving:
            self._is_leaving = True
            self._link.send(to_row(Leaving(seconds=_leaves_in_s(os.environ), why=why)))

    def on_closed(self, reason: str) -> None:
        why = reason or "the controller is gone"
        if self._launcher is not None and not (self._is_ending or self.over.done()):
            self.over.set_exception(Unheard(why))
        else:
            self._finish("" if self._is_ending else why)

    async def end_now(self) -> None:
        """Kill what is left, and wait a moment for it: the folder is removed next."""
        self._delivered.stop(_KILLED_S)
        self._link.close()
        self._service.kill()
        if self._launcher is not None:
            self._launcher.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILLED_S):
                if self._launcher is not None:
                    await self._launcher.close()
                await self._service.gone()

    def _finish(self, why: str) -> None:
        if not self.over.done():
            self.over.set_result(why)

    def _on_message(self, message: Message) -> None:
        match message:
            case ["send" | "kill" | "signal" as order, str(name), what]:
                if (worker := self._workers.get(name)) is not None:
                    getattr(worker, order)(what)
            case ["launch", str(name), list(gpus), int(most_bytes)]:
                self._launch(name, Grant(gpus=tuple(gpus), memory_bytes=most_bytes))
            case ["order", list(order)]:
                self._service.order(order)
            case ["learn", list(modules), float(took_s)]:
                if self._launcher is not None:
                    self._launcher.learn(modules, took_s)
            case ["heartbeat"]:
                pass
            case _:
                self._on_order(message)

    def _on_order(self, message: Message) -> None:
        match message:
            case [
                "welcome",
                str(),
                {"heartbeat_s": float(every_s), "lease_s": float(lease_s)},
            ]:
                if self._watching is not None:
                    self._watching.cancel()
                self._tasks.start(end_if_silent(self._link, lease_s, forgives=False))
                self._tasks.start(self._send_heartbeats(every_s))
            case ["file" | "part" | "whole", *_] if self._launcher is None:
                self._take_file(message)
            case ["load", dict(table)] if self._launcher is None:
                self._tasks.start(self._open(table))
            case ["end", float(grace_s)]:
                if not self._is_ending:
                    self._is_ending = True
                    self._tasks.start(self._end(grace_s))
            case ["refused", str(text)]:
                self._finish(f"the controller refused this node: {text}")
            case _:
                raise WireError(f"not an order to an agent: {message[0]!r:.80}")

    def _take_file(self, message: Message) -> None:
        """Raises WireError."""
        try:
            self._delivered.take(message)
        except OSError as error:
            self._report_unwritable(error)
            raise WireError(str(error)) from error

    def _report_unwritable(self, error: OSError) -> None:
        place = os.path.dirname(self._folder)
        text = f"what the controller has sent cannot be written to {place}: {error}"
        self._report_unloadable(type(error).__name__, text)

    def _report_unloadable(self, type_name: str, message: str, traceback: str = "") -> None:
        found = Unloadable(type_name=type_name, message=message, traceback=traceback)
        self._link.send(to_row(found))

    def _launch(self, name: str, grant: Grant) -> None:
        assert self._launcher is not None
        relay = Relay(name, self._link.send, lambda: self._workers.pop(name, None))
        relay.worker = self._workers[name] = self._launcher.launch(name, relay, grant=grant)

    async def _send_heartbeats(self, every_s: float) -> None:
        while True:
            self._link.send(to_row(Heartbeat(disk_free_bytes=disk_free_bytes(self._folder))))
            await asyncio.sleep(every_s)

    async def _open(self, table: Mapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(_UNPACKED_S):
                await self._in_thread(self._delivered.unpack)
        except OSError as error:  # also if it takes too long
            self._report_unwritable(error)
            return
        if table["ray_names"]:
            ray_path.activate()
        _import_from(table["import_folders"])
        self._delivered.import_from()
        launcher = self._launcher = LocalLauncher(
            tasks=self._tasks,
            environ={**os.environ, **table["env_vars"], NODE_DIR: self._folder},
            directory=self._delivered.directory or table["directory"],
            learns=table["learns"],
            workers_move=table["workers_move"],
        )
        watch = StoppedWatch(table["stopped_deadline_s"], self._processes, self._warn)
        self._tasks.start(watch.run())
        try:
            if table["service"]:
                self._service.load(table["service"])
            notice = await launcher.open(table["entry"], table["payload"])
        except LaunchFailed as error:
            self._report_unloadable(error.type_name, error.message, error.traceback)
        except (OSError, RuntimeFault) as error:
            self._report_unloadable(type(error).__name__, str(error))
        else:
            self._link.send(to_row(Loaded(notice=notice)))

    async def _end(self, grace_s: float) -> None:
        """End the workers, then the service, and let the controller read what they said last."""
        if self._launcher is not None and (left := await self._launcher.close()):
            self._warn(left)
        await self._service.close(grace_s)
        self._link.finish()
        await asyncio.sleep(_LAST_S)
        self._finish("")

    def _processes(self) -> list[Watched]:
        own = [] if self._launcher is None else self._launcher.processes()
        return [*own, *self._service.processes()]

    def _warn(self, text: str) -> None:
        self._link.send(to_row(Warned(text=text)))


def _import_from(folders: Sequence[str]) -> None:
    """Let workers import from these folders, too, if this node has them."""
    new = [folder for folder in folders if folder not in sys.path and os.path.isdir(folder)]
    sys.path.extend(new)


def _leaves_in_s(environ: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(environ[LEAVES_IN_S]))
    except (KeyError, ValueError):
        return _LEAVES_IN_S


class Relay:
    """The listener of one worker: its messages, its pid and its exit go to the controller."""

    def __init__(
        self, name: str, send: Callable[[Message], None], over: Callable[[], object]
    ) -> None:
        self._name = name
        self._send = send
        self._over = over
        self._is_pid_told = False
        self.worker: WorkerHandle | None = None

    def on_message(self, message: Message) -> None:
        """Raises WireError for a message that cannot be sent on."""
        self._tell_pid()
        try:
            self._send(["from", self._name, message])
        except (ValueError, TypeError, OverflowError) as error:  # nested too deep
            raise WireError(f"a message that cannot be relayed: {error}") from error

    def on_used(self, used: Used) -> None:
        self._send(to_row(WorkerUsed(worker=self._name, used=used)))

    def on_exit(self, ending: ExitCause) -> None:
        self._over()
        self._send(to_row(WorkerExit(worker=self._name, ending=ending)))

    def _tell_pid(self) -> None:
        if not self._is_pid_told and self.worker is not None and self.worker.pid:
            self._is_pid_told = True
            self._send(to_row(WorkerPid(worker=self._name, pid=self.worker.pid)))
