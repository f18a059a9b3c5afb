"""The warm parent's successors: forks of it that have imported what the first workers imported.

A successor is forked, not started, so the user's modules are not imported again and their data is
in memory only once. It imports in the background, while the warm parent continues to fork and to
perform orders; when it is ready, it forks the next workers. If an import hangs, crashes or leaves
threads behind, only the successor is lost: another one is made without that module.

The launcher (`holdfast.runtime.local_launcher`) asks `Succession.forker` which process forks the
next worker. The successor's own side is in `holdfast.runtime.warm.parent`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from holdfast.late import Timer
from holdfast.runtime.connection import Connection
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.wire import Message

# Successors are made one after the other: for further imports of later trials, and to replace
# successors that failed.
MOST_SUCCESSORS: Final = 4
# The time after which an import has failed and its successor is killed.
IMPORT_DEADLINE_S: Final = 120.0
# Workers wait for the first successor at most twice as long as the first worker took for its
# imports, within these limits. So an import that hangs delays a run only once.
WAIT_S: Final = (1.0, 30.0)

_numbers = itertools.count(1)
_log = logging.getLogger(__name__)


class Forker(Protocol):
    """A process that forks workers on order: a warm parent, or one of its successors.

    `cause` says how it ended, "" before that; it follows the words "it was lost"."""

    cause: str

    @property
    def pid(self) -> int: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def is_loading(self) -> bool:
        """True if it does not read orders yet."""

    def send(self, message: Message, fds: Sequence[int] = ()) -> None: ...

    def kill(self, why: str = "") -> None: ...


class Successor:
    """The controller's handle of a successor. The warm parent reports its end."""

    def __init__(
        self,
        name: str,
        parent: Forker,
        modules: Sequence[str],
        directory: str,
        on_message: OnMessage,
    ) -> None:
        """Raises OSError."""
        self.name = name
        self.is_ready = False
        self.cause = ""
        # The current import, which is to blame if the successor dies or hangs.
        self.importing = ""
        self._parent = parent
        self._on_message = on_message
        ours, theirs = socket.socketpair()
        with theirs:
            self._connection = Connection(ours, self._listen, self._on_closed)
            parent.send(["succeed", name], [theirs.fileno()])
        self._deadline = self._start_deadline()
        self._connection.send(["preload", list(modules), directory])

    @property
    def is_open(self) -> bool:
        return self.is_ready and self._connection.is_open

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        self._connection.send(message, fds)

    @property
    def pid(self) -> int:
        """0 before its first message."""
        return self._connection.peer_pid

    @property
    def is_loading(self) -> bool:
        return not self.is_ready

    def kill(self, why: str = "") -> None:
        self.cause = self.cause or (why and f"was killed by holdfast: {why}")
        self._parent.send(["signal", self.name, signal.SIGKILL])

    def ended(self) -> None:
        """Called after its death, which also kills its workers. Reads its last messages."""
        self._connection.drain()
        self.close()

    def close(self) -> None:
        self._deadline.cancel()
        self._connection.close()

    def _start_deadline(self) -> Timer:
        return Timer(asyncio.get_running_loop(), IMPORT_DEADLINE_S, self.kill)

    def _listen(self, message: Message) -> None:
        self._deadline.cancel()
        match message:
            case ["importing", str(module)]:
                self.importing = module
                self._deadline = self._start_deadline()
            case ["left", str(module), str(why)]:
                _log.debug("%s is not imported ahead of the trials: %s", module, why)
                self._deadline = self._start_deadline()
            case ["ready", *_]:
                self.importing = ""
                self.is_ready = True
                self._on_message(self, message)
            case ["unfit", str(module), str(why)]:
                self.importing = module
                _log.debug("%s is not imported ahead of the trials: %s", module, why)
                self.kill()
            case _:
                self._on_message(self, message)

    def _on_closed(self, reason: str) -> None:
        """Kill the process, which cannot be used without a connection."""
        self.kill()


OnMessage = Callable[[Successor, Message], None]


class Succession:
    """The successors of one warm parent. The newest one that is ready forks the workers."""

    def __init__(
        self,
        parent: Forker,
        on_message: Callable[[Message], None],
        on_lost: Callable[[Forker], None],
        on_settled: Callable[[], None],
        *,
        directory: str,
    ) -> None:
        """`on_message` gets the messages of successors about workers, `on_lost` each successor
        that died. `on_settled` is called when workers need not wait for a successor any more.
        Successors import in `directory`; "" means the warm parent's own."""
        self._parent = parent
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_settled = on_settled
        self._wait_timer: asyncio.TimerHandle | None = None
        self._directory = directory
        self._modules: dict[str, None] = {}
        self._refused: set[str] = set()
        self._successors: dict[str, Successor] = {}
        self._made = 0

    @property
    def forker(self) -> Forker:
        """The process that forks the next worker."""
        ready = self._ready()
        return ready[-1] if ready else self._parent

    @property
    def is_awaited(self) -> bool:
        """True if workers should wait for the first successor."""
        return self._wait_timer is not None

    def learn(self, modules: Iterable[str], took_s: float) -> None:
        """Record the imports of a worker, which took at most `took_s`. Imports that are reported
        while a successor is being made are left for the next one: most workers report the same."""
        new = [name for name in modules if name not in self._modules and self._may_import(name)]
        self._modules.update(dict.fromkeys(new))
        if new and not self._is_preparing():
            self._make_successor()
            if self._made == 1 and self._is_preparing():
                shortest, longest = WAIT_S
                wait_s = min(max(shortest, 2 * took_s), longest)
                loop = asyncio.get_running_loop()
                self._wait_timer = loop.call_later(wait_s, self._end_wait)

    def has_ended(self, name: str) -> bool:
        """Handle the exit of a process that the warm parent reports, if it is a successor's."""
        successor = self._successors.pop(name, None)
        if successor is None:
            return False
        successor.ended()
        self._on_lost(successor)
        if not successor.is_ready:
            self._blame(successor.importing)
            if not self._is_preparing():
                self._end_wait()
        return True

    def processes(self) -> list[Watched]:
        return [
            Watched(one.pid, "the warm parent's successor", one.kill)
            for one in self._successors.values()
            if one.pid
        ]

    def retire(self, has_workers: Callable[[Forker], bool]) -> None:
        """End the replaced successors that have no workers left."""
        for older in self._ready()[:-1]:
            if not has_workers(older):
                older.send(["end"])

    def close(self) -> None:
        """Called when the warm parent ends, and all successors with it."""
        while self._successors:
            _, successor = self._successors.popitem()
            successor.ended()
            self._on_lost(successor)
        self._end_wait()

    def _is_preparing(self) -> bool:
        return any(not one.is_ready for one in self._successors.values())

    def _end_wait(self) -> None:
        if self._wait_timer is not None:
            self._wait_timer.cancel()
            self._wait_timer = None
            self._on_settled()

    def _ready(self) -> list[Successor]:
        return [one for one in self._successors.values() if one.is_open]

    def _may_import(self, name: str) -> bool:
        return not any(f"{name}.".startswith(refused) for refused in self._refused)

    def _blame(self, module: str) -> None:
        """Make another successor without the module that failed. The last one imports only the
        modules before it, because others may import the failed module, too."""
        if not module:
            return  # it died for another reason, such as a lack of memory
        self._refused.add(f"{module}.")
        before = itertools.takewhile(lambda name: name != module, self._modules)
        kept = list(before if self._made == MOST_SUCCESSORS - 1 else self._modules)
        self._modules = {name: None for name in kept if self._may_import(name)}
        if self._modules:
            self._make_successor()

    def _make_successor(self) -> None:
        if self._made == MOST_SUCCESSORS or not self._parent.is_open:
            return
        self._made += 1
        name = f"successor {next(_numbers)}"
        try:
            self._successors[name] = Successor(
                name,
                self._parent,
                list(self._modules),
                self._directory,
                self._on_successor_message,
            )
        except OSError as error:
            _log.debug("the warm parent has no successor: %s", error)

    def _on_successor_message(self, successor: Successor, message: Message) -> None:
        if message[0] == "ready":
            self._end_wait()
        else:
            self._on_message(message)
