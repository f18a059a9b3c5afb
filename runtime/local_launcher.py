"""The launcher for this machine: a warm parent forks the workers.

The way of a launch: `launch` connects the worker (`warm/client.py:LocalWorker`), and `_order_fork`
sends the order, through `warm/client.py` to the warm parent, or through `warm/succession.py` to
its newest successor. `warm/parent.py` forks, and the child runs its entry in `worker.py`. While
the first successor is being made, new workers wait for it (`_not_forked`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from holdfast.late import Timer
from holdfast.runtime import process_control
from holdfast.runtime.errors import LaunchFailed, WireError
from holdfast.runtime.interpreter import absolute_pythonpath
from holdfast.runtime.launcher import (
    NOTHING_SAID,
    ExitCause,
    Grant,
    KernelKills,
    Listener,
    ending_of,
)
from holdfast.runtime.process_exits import (
    EXIT_DEADLINE_S,
    Watched,
    is_stopped_now,
    still_there,
    survives,
)
from holdfast.runtime.tasks import TaskScope, happens
from holdfast.runtime.usage.used import Spent, Used
from holdfast.runtime.warm.client import LocalWorker, WarmClient
from holdfast.runtime.warm.memory_groups import CannotEnforce, prepare
from holdfast.runtime.warm.sampling import Sampling
from holdfast.runtime.warm.succession import Forker, Succession
from holdfast.runtime.wire import Message, checked

# The time from an order to the question, and from the question to a kill without an answer.
ANSWER_S = 60.0


class PendingLaunches:
    """The workers that were ordered and are not known to exist yet."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._asked: dict[int, Forker] = {}

    def ordered(self, forker: Forker, has_started: Callable[[], bool]) -> None:
        """`forker` has the order to fork a worker; `has_started()` says whether it exists."""
        Timer(self._loop, ANSWER_S, partial(self._ask, forker, has_started))

    def answered(self, token: int) -> None:
        """The forker has answered, so it will report the worker later."""
        self._asked.pop(token, None)

    def _ask(self, forker: Forker, has_started: Callable[[], bool]) -> None:
        if has_started() or not forker.is_open:
            return
        if forker.is_loading:
            self.ordered(forker, has_started)
            return
        self.ask(forker)

    def ask(self, forker: Forker) -> None:
        """Send a question to `forker`, and kill it if it does not answer within `ANSWER_S`."""
        token = next(self._tokens)
        self._asked[token] = forker
        forker.send(["ping", token])
        Timer(self._loop, ANSWER_S, partial(self._judge, token))

    def _judge(self, token: int) -> None:
        if (forker := self._asked.pop(token, None)) is not None:
            forker.kill(f"it did not answer for {ANSWER_S:g} s")


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
        held: Sequence[str] = (),
        left: Sequence[str] = (),
    ) -> None:
        """Every process of this launcher keeps `inherited_fds` open, and shared locks on the files
        `held`: a process that gets the exclusive lock knows that all of them have ended. Workers
        start in `directory` and import from there first. `learns`: modules that the first workers
        import are preloaded for later ones. `workers_move`: each worker changes its working
        directory at its start. If this process dies, the sockets `left` are removed."""
        self._tasks = tasks
        self._environ = {**environ, **absolute_pythonpath(environ)}
        self._inherited = tuple(inherited_fds)
        self._held, self._left = held, left
        self._directory = directory
        self._learns = learns
        self._importing_directory = os.sep if workers_move else ""
        self._load: Message = []
        self._warm_client: WarmClient | None = None
        self._successions: dict[WarmClient, Succession] = {}
        self._workers: dict[str, LocalWorker] = {}
        # Warnings about the workers that survived SIGKILL, by name.
        self._survivors: dict[str, str] = {}
        self._not_forked: dict[str, socket.socket] = {}
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._closing = False
        self._kills = KernelKills()
        self._launches = PendingLaunches()
        self._limits_memory = False
        self._sampling = Sampling(self._pids, self._tell_used, self._environ)

    async def open(self, entry: str, payload: bytes) -> str:
        self._load = ["load", entry, payload, self._learns]
        try:
            answer = await self._start_warm_parent().loaded
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

    def launch(
        self, name: str, listener: Listener, node: str = "", grant: Grant = NOTHING_SAID
    ) -> LocalWorker:
        worker = LocalWorker(name, listener, self, grant)
        self._workers[name] = worker
        self._sampling.began(name, grant.gpus)
        self._all_gone.clear()
        problem = "the run is ending" if self._closing else self._refusal(grant)
        problem = problem or self._fork_or_postpone(worker)
        if problem:
            asyncio.get_running_loop().call_soon(self._fail_launch, name, problem)
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
        for parent, succession in self._successions.items():
            found += [Watched(parent.pid, "the warm parent", parent.kill)]
            found += succession.processes()
        return found

    def kill(self) -> None:
        self._closing = True
        for worker in list(self._workers.values()):
            if worker.pid:
                process_control.kill_group(worker.pid)
        for warm_client in self._successions:
            warm_client.kill()
        self._sampling.kill()

    async def close(self) -> str:
        self._closing = True
        for worker in list(self._workers.values()):
            worker.kill("the run ended")
        for warm_client in self._successions:
            if warm_client.is_loading:  # it has no workers, and does not read orders yet
                warm_client.kill()
        if not await happens(self._all_gone, EXIT_DEADLINE_S):
            self.kill()  # if the warm parent dies, the kernel kills its workers
            await happens(self._all_gone, EXIT_DEADLINE_S)
        for worker in list(self._workers.values()):
            self._abandon(worker)
        async with asyncio.TaskGroup() as group:
            closing = [group.create_task(one.close()) for one in self._successions]
            group.create_task(self._sampling.close())
        warnings = [*self._survivors.values(), *(one.result() for one in closing)]
        return "; ".join(filter(None, warnings))

    def _abandon(self, worker: LocalWorker) -> None:
        """Stop waiting for a worker that was killed."""
        cause = "did not end when it was killed"
        if worker.pid and survives(worker.pid):
            told = still_there(worker.pid)
            cause = f"was killed by holdfast: {worker.killed}. Its process {told}"
            self._survivors[worker.name] = f"the worker {worker.name} {told}"
        self._forget(worker.name, ExitCause(cause=cause))

    @property
    def _succession(self) -> Succession | None:
        """The successors of the newest warm parent; None if it is dead."""
        return None if self._warm_client is None else self._successions.get(self._warm_client)

    def _refusal(self, grant: Grant) -> str:
        """Why a worker's memory cannot be limited; "" if it can, or need not be."""
        if not grant.memory_bytes or self._limits_memory:
            return ""
        try:
            prepare()
        except CannotEnforce as error:
            return str(error)
        self._limits_memory = True
        return ""

    def _fork_or_postpone(self, worker: LocalWorker) -> str:
        """Connect the worker, and order its fork unless it should wait for the first successor.
        Returns an error message, or ""."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            return str(error)
        worker.connect(ours)
        self._not_forked[worker.name] = theirs
        succession = self._succession
        is_postponed = succession is not None and succession.is_awaited
        return "" if is_postponed else self._order_fork(worker)

    def fork_now(self, worker: LocalWorker) -> None:
        """Order the worker's fork now, if it was postponed."""
        if worker.name in self._not_forked and (problem := self._order_fork(worker)):
            self._fail_launch(worker.name, problem)

    def _fork_postponed(self) -> None:
        for name in list(self._not_forked):
            self.fork_now(self._workers[name])

    def _order_fork(self, worker: LocalWorker) -> str:
        """Send the order, with the worker's end of its connection. Returns an error message, or
        ""."""
        with self._not_forked.pop(worker.name) as theirs:
            try:
                worker.forker = self._find_forker()
            except OSError as error:
                return str(error)
            order = ["fork", worker.name, worker.grant.memory_bytes]
            worker.forker.send(order, [theirs.fileno()])
            self._launches.ordered(worker.forker, lambda: worker.has_started)
        return ""

    def _fail_launch(self, name: str, problem: str) -> None:
        self._forget(name, ExitCause(cause=f"could not be started: {problem}"))

    def _find_forker(self) -> Forker:
        """The process that forks the next worker; starts a warm parent if there is none. Raises
        OSError."""
        warm_client = self._warm_client
        if warm_client is None or not warm_client.is_open:
            if self._closing:
                raise OSError("the run is ending")
            return self._start_warm_parent()
        return self._successions[warm_client].forker

    def _start_warm_parent(self) -> WarmClient:
        """Start a warm parent: the first one, or the next after one was lost. Raises OSError."""
        warm_client = self._warm_client = WarmClient(
            self._load,
            self._on_message,
            self._on_lost,
            environ=self._environ,
            inherited_fds=self._inherited,
            directory=self._directory,
            held=self._held,
            left=self._left,
        )
        self._successions[warm_client] = Succession(
            warm_client,
            self._on_message,
            self._orphan_workers_of,
            self._fork_postponed,
            directory=self._importing_directory,
        )
        return warm_client

    def _on_message(self, message: Message) -> None:
        match message:
            case ["failed" | "exited", str(name), *_] if self._was_successor(name):
                pass
            case ["forked", str(name), int(pid)]:
                if name in self._workers:
                    self._workers[name].take_pid(pid)
            case ["pong", int(token)]:
                self._launches.answered(token)
            case ["failed", str(name), str(reason)]:
                self._fail_launch(name, reason)
            case ["exited", str(name), int(status), list(spent)]:
                self._survivors.pop(name, None)
                self._on_exited(name, status, checked(Spent, spent))
            case _:
                raise WireError(f"not a message of the warm parent: {message!r:.200}")

    def _on_exited(self, name: str, status: int, spent: Spent) -> None:
        ours, limit = "", 0
        if (worker := self._workers.get(name)) is not None:
            ours, limit = worker.killed, worker.grant.memory_bytes * spent.exceeded
        self._forget(name, ending_of(status, self._kills, ours, limit), spent)

    def _pids(self) -> dict[str, int]:
        return {name: worker.pid for name, worker in self._workers.items()}

    def _tell_used(self, name: str, used: Used) -> None:
        if name in self._workers:
            self._workers[name].has_used(used)

    def _was_successor(self, name: str) -> bool:
        """True if the name in a message is a successor's, which has ended or failed to start."""
        return any(found.has_ended(name) for found in list(self._successions.values()))

    def _on_lost(self, warm_client: WarmClient) -> None:
        """The process has died. The kernel kills its children, which ends their connections."""
        self._successions.pop(warm_client).close()
        self._orphan_workers_of(warm_client)

    def _orphan_workers_of(self, forker: Forker) -> None:
        for worker in list(self._workers.values()):
            if worker.forker is forker:
                worker.orphaned()

    def _forget(self, name: str, ending: ExitCause, spent: Spent | None = None) -> None:
        worker = self._workers.pop(name, None)
        used = self._sampling.ended(name, spent)
        if worker is not None:
            worker.gone(replace(ending, used=used))
            for succession in self._successions.values():
                succession.retire(self._has_workers)
        if not self._workers:
            self._all_gone.set()

    def await_exit(self, worker: LocalWorker, forker: Forker) -> None:
        """Wait for the exit of a worker that was killed, for a limited time."""
        self._tasks.start(
            exit_of(
                worker.exit_known,
                forker,
                launches=self._launches,
                parents=self.parents,
                abandon=lambda: self._abandon(worker),
            )
        )

    def _has_workers(self, forker: Forker) -> bool:
        return any(worker.forker is forker for worker in self._workers.values())

    def on_closed(self, worker: LocalWorker) -> None:
        """Called when the connection to the worker has ended. Usually its exit is reported soon
        after; an orphan's never is."""
        if worker.is_orphan and self._workers.get(worker.name) is worker:
            how = worker.forker.cause if worker.forker is not None else ""
            cause = f"was lost together with the process that started it{how and f', which {how}'}"
            self._forget(worker.name, ExitCause(cause=cause))


# -- the exit of a worker that was killed, and the parent that should report it -------------------

# Before this time, a parent that does not answer has been killed, and its workers with it.
LEFT_AFTER_S = ANSWER_S + 3 * EXIT_DEADLINE_S


async def exit_of(
    exit_known: asyncio.Event,
    forker: Forker,
    *,
    launches: PendingLaunches,
    parents: Callable[[], Sequence[Watched]],
    abandon: Callable[[], object],
) -> None:
    """Wait until `exit_known` is set. `forker` is the process that forked the worker.

    Kills parents that were stopped (SIGSTOP), and a `forker` that does not answer for `ANSWER_S`:
    the kernel then kills the workers that they have forked. If the forker answers, the worker
    itself hangs in the kernel: this calls `abandon` after `LEFT_AFTER_S` and stops waiting.
    """
    waited_s, is_asked = 0.0, False
    while not await happens(exit_known, EXIT_DEADLINE_S):
        waited_s += EXIT_DEADLINE_S
        stopped = [one for one in parents() if is_stopped_now(one.pid)]
        for one in stopped:
            one.kill("it was stopped from outside (SIGSTOP) and could not end its workers")
        if not (stopped or is_asked):
            is_asked = True
            launches.ask(forker)
        if waited_s > LEFT_AFTER_S:
            abandon()
            return
