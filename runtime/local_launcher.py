"""The launcher for this machine: a warm parent forks the workers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.runtime import process_control
from holdfast.runtime.connection import Connection
from holdfast.runtime.errors import LaunchFailed, WireError
from holdfast.runtime.exit_cause import ExitCause, KernelKills, ending_of
from holdfast.runtime.launcher import Listener
from holdfast.runtime.orphans import is_child
from holdfast.runtime.process_exits import PATIENCE_S, happens, still_there, survives
from holdfast.runtime.stopped import Watched
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.warm.awaited_exit import exit_of
from holdfast.runtime.warm.client import WarmClient
from holdfast.runtime.warm.pending_launches import PendingLaunches
from holdfast.runtime.warm.succession import Forker, Succession
from holdfast.runtime.wire import LARGEST_FROM_WORKER, Message

_SPAWNS = "Forking is not safe ({reason}). Each worker starts a fresh interpreter, which is slower"


class LocalLauncher:
    """Workers forked by a warm parent on this machine (see `holdfast.runtime.warm.parent`)."""

    def __init__(
        self,
        *,
        tasks: TaskScope,
        environ: Mapping[str, str],
        inherited_fds: Sequence[int] = (),
        directory: str | None = None,
        learns: bool = True,
        workers_move: bool = False,
        held: str = "",
    ) -> None:
        """Every process of this launcher holds `inherited_fds` open, and a shared lock on the file
        `held`: whoever gets the exclusive lock knows that all are gone. Workers start in
        `directory` and import from there first. `learns`: later workers find loaded what the first
        ones imported. `workers_move`: each worker changes its working directory soon."""
        self._tasks = tasks
        self._environ = dict(environ)
        self._inherited = tuple(inherited_fds)
        self._held = held
        self._directory = directory
        self._learns = learns
        self._importing_directory = os.sep if workers_move else ""
        self._load: Message = []
        self._warm_client: WarmClient | None = None
        self._not_reaped: dict[WarmClient, Succession] = {}
        self._workers: dict[str, LocalWorker] = {}
        self._left: dict[str, str] = {}  # what to tell of workers that still exist, by name
        self._unborn: dict[str, socket.socket] = {}
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._closing = False
        self._kills = KernelKills()
        self._launches = PendingLaunches()

    async def open(self, entry: str, payload: bytes) -> str:
        self._load = ["load", entry, payload, self._learns]
        try:
            answer = await self._begin().loaded
        except OSError as error:
            raise LaunchFailed(type(error).__name__, str(error)) from error
        match answer:
            case ["ready", spawns, why]:
                reason = why or "this platform makes it unsafe"
                return _SPAWNS.format(reason=reason) if spawns else ""
            case ["refused", type_name, message, traceback]:
                raise LaunchFailed(type_name, message, traceback)
            case _:
                raise LaunchFailed("WorkerLost", f"the warm parent {answer[-1]}")

    def launch(self, name: str, listener: Listener) -> LocalWorker:
        worker = LocalWorker(name, listener, self)
        self._workers[name] = worker
        self._all_gone.clear()
        problem = "the run is ending" if self._closing else self._start(worker)
        if problem:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._forget, name, ExitCause(cause=f"could not be started: {problem}"))
        return worker

    def learn(self, modules: Sequence[str], took_s: float) -> None:
        succession = self._succession
        if succession is not None and self._learns and not self._closing:
            succession.learn(modules, took_s)

    def processes(self) -> list[Watched]:
        workers = [
            Watched(one.pid, f"the worker {one.name}", one.kill)
            for one in self._workers.values()
            if one.pid
        ]
        return workers + self.parents()

    def parents(self) -> list[Watched]:
        """The processes that fork workers and report their exits."""
        found: list[Watched] = []
        for parent, succession in self._not_reaped.items():
            found += [Watched(parent.pid, "the warm parent", parent.kill)]
            found += succession.processes()
        return found

    def kill(self) -> None:
        self._closing = True
        for worker in list(self._workers.values()):
            if worker.pid:
                process_control.kill_group(worker.pid)
        for warm_client in self._not_reaped:
            warm_client.kill()

    async def close(self) -> str:
        self._closing = True
        for worker in list(self._workers.values()):
            worker.kill("the run ended")
        for warm_client in self._not_reaped:
            if warm_client.is_loading:  # it reads no order yet, and has no workers
                warm_client.kill()
        if not await happens(self._all_gone, PATIENCE_S):
            self.kill()  # the kernel kills workers with the warm parent that forked them
            await happens(self._all_gone, PATIENCE_S)
        for worker in list(self._workers.values()):
            self._leave(worker)
        async with asyncio.TaskGroup() as group:
            closing = [group.create_task(one.close()) for one in self._not_reaped]
        return "; ".join(filter(None, [*self._left.values(), *(one.result() for one in closing)]))

    def _leave(self, worker: LocalWorker) -> None:
        """Wait no more for a worker that was killed."""
        cause = "did not end when it was killed"
        if worker.pid and survives(worker.pid):
            told = still_there(worker.pid)
            cause = f"was killed by holdfast: {worker.killed}. Its process {told}"
            self._left[worker.name] = f"the worker {worker.name} {told}"
        self._forget(worker.name, ExitCause(cause=cause))

    @property
    def _succession(self) -> Succession | None:
        """Of the newest warm parent, None where it is dead."""
        return None if self._warm_client is None else self._not_reaped.get(self._warm_client)

    def _start(self, worker: LocalWorker) -> str:
        """Order the fork. Returns why that is impossible, mostly ""."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            return str(error)
        worker.connect(ours)
        self._unborn[worker.name] = theirs
        succession = self._succession
        if succession is None or not succession.is_awaited:
            return self._fork(worker)
        return ""

    def bear(self, worker: LocalWorker) -> None:
        """Have it forked now, if that was postponed."""
        if worker.name in self._unborn:
            problem = self._fork(worker)
            if problem:
                self._forget(worker.name, ExitCause(cause=f"could not be started: {problem}"))

    def _bear_all(self) -> None:
        for name in list(self._unborn):
            self.bear(self._workers[name])

    def _fork(self, worker: LocalWorker) -> str:
        with self._unborn.pop(worker.name) as theirs:
            try:
                worker.forker = self._forker()
            except OSError as error:
                return str(error)
            worker.forker.send(["fork", worker.name], [theirs.fileno()])
            self._launches.ordered(worker.forker, lambda: worker.is_born)
        return ""

    def _forker(self) -> Forker:
        """Raises OSError."""
        warm_client = self._warm_client
        if warm_client is None or not warm_client.is_open:
            if self._closing:
                raise OSError("the run is ending")
            return self._begin()
        return self._not_reaped[warm_client].forker

    def _begin(self) -> WarmClient:
        """Start a warm parent: the first one, or the next after one was lost. Raises OSError."""
        warm_client = self._warm_client = WarmClient(
            self._load,
            self._on_message,
            self._on_lost,
            environ=self._environ,
            inherited_fds=self._inherited,
            directory=self._directory,
            held=self._held,
        )
        self._not_reaped[warm_client] = Succession(
            warm_client,
            self._on_message,
            self._lose,
            self._bear_all,
            directory=self._importing_directory,
        )
        return warm_client

    def _on_message(self, message: Message) -> None:
        match message:
            case ["failed" | "exited", str(name), _] if self._was_successor(name):
                pass
            case ["forked", str(name), int(pid)]:
                if name in self._workers:
                    self._workers[name].take_pid(pid)
            case ["pong", int(token)]:
                self._launches.answered(token)
            case ["failed", str(name), str(reason)]:
                self._forget(name, ExitCause(cause=f"could not be started: {reason}"))
            case ["exited", str(name), int(status)]:
                self._left.pop(name, None)
                ours = self._workers[name].killed if name in self._workers else ""
                self._forget(name, ending_of(status, self._kills, ours))
            case _:
                raise WireError(f"not a message of the warm parent: {message!r:.200}")

    def _was_successor(self, name: str) -> bool:
        """Whether a successor, and not a worker, has ended or could not be started."""
        return any(found.has_ended(name) for found in list(self._not_reaped.values()))

    def _on_lost(self, warm_client: WarmClient) -> None:
        """Its process is dead. The kernel kills its children, which ends their connections."""
        self._not_reaped.pop(warm_client).close()
        self._lose(warm_client)

    def _lose(self, forker: Forker) -> None:
        for worker in list(self._workers.values()):
            if worker.forker is forker:
                worker.orphaned()

    def _forget(self, name: str, ending: ExitCause) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            worker.gone(ending)
            for succession in self._not_reaped.values():
                succession.retire(self._has_workers)
        if not self._workers:
            self._all_gone.set()

    def await_exit(self, worker: LocalWorker, forker: Forker) -> None:
        """Of a worker that was killed."""
        self._tasks.start(
            exit_of(
                lambda: worker.is_gone or worker.is_orphan,
                forker,
                launches=self._launches,
                parents=self.parents,
                leave=lambda: self._leave(worker),
            )
        )

    def _has_workers(self, forker: Forker) -> bool:
        return any(worker.forker is forker for worker in self._workers.values())

    def on_closed(self, worker: LocalWorker) -> None:
        """The connection to the worker has ended. Mostly its exit is reported a moment later."""
        if worker.is_orphan and self._workers.get(worker.name) is worker:
            how = worker.forker.cause if worker.forker is not None else ""
            cause = f"was lost together with the process that started it{how and f', which {how}'}"
            self._forget(worker.name, ExitCause(cause=cause))


class LocalWorker:
    """A worker of a `LocalLauncher`."""

    def __init__(self, name: str, listener: Listener, launcher: LocalLauncher) -> None:
        self.name = name
        self.killed = self._broken = ""
        self.is_gone = False
        self._told_pid = 0
        self.is_orphan = False
        self.forker: Forker | None = None
        self._listener = listener
        self._launcher = launcher
        self._link: Connection | None = None

    def connect(self, sock: socket.socket) -> None:
        self._link = Connection(
            sock, self._listener.on_message, self._on_closed, largest=LARGEST_FROM_WORKER
        )

    @property
    def pid(self) -> int:
        known = 0 if self._link is None else self._link.peer_pid
        return known or self._told_pid

    @property
    def is_born(self) -> bool:
        """Whether it has sent something, or its exit was reported."""
        return bool(self.pid) or self.is_gone

    def take_pid(self, told: int) -> None:
        """Take the pid from its parent, or itself, if the kernel has not named the sender."""
        if not self.pid and self.forker is not None and is_child(told, self.forker.pid):
            self._told_pid = told

    def confirm(self, told: int) -> None:
        self.take_pid(told)
        if told != self.pid:
            raise ValueError(f"its pid is {self.pid}, and it says {told}")

    def send(self, message: Message) -> None:
        if self._link is not None:
            self._link.send(message)

    def kill(self, why: str) -> None:
        is_first, self.killed = not self.killed, self.killed or why
        self.signal(signal.SIGKILL)
        if is_first and self.forker is not None:
            self._launcher.await_exit(self, self.forker)

    def signal(self, signum: int) -> None:
        self._launcher.bear(self)  # one whose fork is postponed hears nothing
        if self.forker is not None:
            self.forker.send(["signal", self.name, signum])

    def orphaned(self) -> None:
        """Nobody will report the exit any more: the end of the connection counts as one."""
        self.is_orphan = True
        if self.pid:
            process_control.kill_group(self.pid)
        # A child that has left its group may hold the connection open: then it is forgotten.
        alive = self._link is not None and self._link.is_open
        loop = asyncio.get_running_loop()
        loop.call_later(PATIENCE_S if alive else 0, self._launcher.on_closed, self)

    def gone(self, ending: ExitCause) -> None:
        """Read what it sent before it ended, since its exit may be heard of first. Then report."""
        self.is_gone = True
        if self._broken and self._broken not in ending.cause:
            # It saw the end of the connection before it was killed.
            ending = replace(ending, cause=f"{ending.cause}: {self._broken}")
        if self._link is not None:
            self._link.drain()
            self._link.close()
        self._listener.on_exit(ending)

    def _on_closed(self, reason: str) -> None:
        if reason:
            self._broken = f"it can no longer be talked to ({reason})"
            self.kill(self._broken)
        self._launcher.on_closed(self)
