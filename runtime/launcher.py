"""The interface of launchers, which start worker processes, and the causes of workers' exits.

`holdfast.runtime.local_launcher` has the launcher for this machine, `holdfast.runtime.fleet` that
for the nodes of a cluster.
"""

from __future__ import annotations

import os
import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Protocol

from holdfast.dataclass import dataclass
from holdfast.names import printable, shown
from holdfast.runtime import process_control
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.usage.used import Used
from holdfast.runtime.wire import Message
from holdfast.schema import Between, Checked
from holdfast.text.errors import shortened

# A shell reports a death by a signal as the status 128 + signal.
_SHELL_BASE = 128
_LAST_LINES, _NOTHING = "Its last lines: ", "It printed nothing"
_SHOWN = 200
_LONGEST_CAUSE = 4000
_OURS = {
    process_control.STOP: "holdfast's order to stop",
    process_control.DUMP: "holdfast's order to show its stack",
}


def _cause(value: object, name: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{name} must be text, not {shown(value)}")
    return printable(shortened(value, _LONGEST_CAUSE))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCause:
    """Why a worker ended. `cause` follows the words "the worker process"; `signum` is 0 if no
    signal ended it. `used` is what it has used, if that is known."""

    cause: Annotated[str, Checked(_cause)]
    signum: Annotated[int, Between(0, 255)] = 0
    is_out_of_memory: bool = False
    used: Used | None = None


class KernelKills:
    """Counts the processes that the kernel has killed because memory ran out (Linux).

    The counter is that of this process's control group, or of the machine if there is none. Other
    systems have no counter.
    """

    def __init__(self, counters: Sequence[str | os.PathLike[str]] | None = None) -> None:
        """`counters` are the files to read; None for those of this process."""
        found = _counters() if counters is None else [Path(path) for path in counters]
        self._files = [path for path in found if _count(path) is not None]
        self._seen = self._total()

    @property
    def where(self) -> str:
        """The files that are read, for messages."""
        return ", ".join(map(str, self._files))

    def take(self) -> bool:
        """Whether the count has grown; each increment is returned once."""
        if self._total() <= self._seen:
            return False
        self._seen += 1
        return True

    def _total(self) -> int:
        return max((_count(path) or 0 for path in self._files), default=0)


def ending_of(
    status: int, kills: KernelKills, ours: str = "", exceeded_bytes: int = 0
) -> ExitCause:
    """The cause for a status from `os.waitpid`. `ours` is holdfast's reason for a SIGKILL, ""
    without one; otherwise the kernel sent it if its count has grown. `exceeded_bytes` is the limit
    of the worker's memory, if the kernel has killed a process at it."""
    code = os.waitstatus_to_exitcode(status)
    signum = -code if code < 0 else 0
    is_killed = signum == signal.SIGKILL or code == _SHELL_BASE + signal.SIGKILL
    if ours and signum == signal.SIGKILL:
        return ExitCause(cause=f"was killed by holdfast: {ours}", signum=signum)
    if is_killed and exceeded_bytes:
        kills.take()  # the counter of the group above may count it, too
        limit = _size(exceeded_bytes)
        cause = f"used more than its memory request of {limit} and was killed (request more of it)"
        return ExitCause(cause=cause, signum=signum, is_out_of_memory=True)
    if is_killed and kills.take():
        cause = f"was killed by the kernel: out of memory (oom_kill in {kills.where})"
        return ExitCause(cause=cause, signum=signum, is_out_of_memory=True)
    return ExitCause(cause=describe_code(code), signum=signum)


def _size(count: int) -> str:
    """As the terminal shows sizes: powers of 1,000."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def describe_code(code: int) -> str:
    """An exit code in words that follow "it"; negative codes are signals."""
    if code >= 0:
        return f"exited with status {code}"
    try:
        name = _OURS.get(-code) or signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    hint = ", possibly out of memory" if -code == signal.SIGKILL else ""
    return f"was killed by signal {-code} ({name}){hint}"


def _counters() -> list[Path]:
    """The counter of this process's control group (version 2 or 1), else the machine's."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    places: list[Path] = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        for root, name in _mounts(controllers):
            # In a container, the path of the group is the host's; its files are at the root.
            places += [Path(f"{root}{group}", name), Path(root, name)]
    readable = [path for path in places if _count(path) is not None]
    return readable[:1] or [Path("/proc/vmstat")]


def _mounts(controllers: str) -> list[tuple[str, str]]:
    if not controllers:
        name = "memory.events"
        return [("/sys/fs/cgroup", name), ("/sys/fs/cgroup/unified", name)]
    if "memory" in controllers.split(","):
        return [("/sys/fs/cgroup/memory", "memory.oom_control")]
    return []


def _count(path: Path) -> int | None:
    try:
        found = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def job_cause(where: str, command: str, how: str, lines: Sequence[str]) -> str:
    """How a job that ran a command has ended: the place, the command and its last lines."""
    told = f"{_LAST_LINES}{' | '.join(lines)}" if lines else _NOTHING
    return f"{where and f'{where}: '}`{command}` {how}. {told}"


def short_cause(cause: str) -> str:
    """The end of a cause that `job_cause` has made, for one line with other facts: the last line
    that the job has printed, or how it has ended. Other causes stay as they are."""
    ran, _, printed = cause.rpartition(_LAST_LINES)
    why = printed.rpartition(" | ")[2] if ran else cause.rpartition("` ")[2]
    return why.removesuffix(_NOTHING).rstrip(". ")[:_SHOWN]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a worker may use: the GPUs with these names (as CUDA_VISIBLE_DEVICES has them), and so
    much memory (0: nothing limits it)."""

    gpus: tuple[str, ...] = ()
    memory_bytes: int = 0


NOTHING_SAID = Grant()


class WorkerHandle(ABC):
    """The controller's handle of one worker process, whichever way its orders go.

    `pid` is 0 until the first message arrives, whose sender the kernel names. Waiting for the
    parent to report the pid would add 0.1 ms to each start.
    """

    def __init__(self, name: str, listener: Listener) -> None:
        self.name = name
        self.is_gone = False
        self._listener = listener
        self._told_pid = 0
        self._broken = ""

    @property
    def pid(self) -> int:
        return self._told_pid

    def take_pid(self, told: int) -> None:
        """Accept a pid that its parent, its node or the worker itself reports, unless it is known
        from the kernel."""
        self._told_pid = self._told_pid or told

    def confirm(self, told: int) -> None:
        """Raise ValueError if `told` is not the worker's pid."""
        self.take_pid(told)
        if told != self.pid:
            raise ValueError(f"its pid is {self.pid}, but it reported {told}")

    @abstractmethod
    def send(self, message: Message) -> None: ...

    @abstractmethod
    def kill(self, why: str) -> None:
        """Kill the worker and everything that it started. `why` is reported as the cause."""

    @abstractmethod
    def signal(self, signum: int) -> None:
        """`process_control.STOP` asks the worker to clean up and exit."""

    def has_used(self, used: Used) -> None:
        if not self.is_gone:
            self._listener.on_used(used)

    def on_broken(self, reason: str) -> None:
        """Kill the worker, whose connection cannot be used any more."""
        self._broken = f"its connection failed ({reason})"
        self.kill(self._broken)

    def gone(self, ending: ExitCause) -> None:
        """Report the exit, once."""
        if self.is_gone:
            return
        self.is_gone = True
        if self._broken and self._broken not in ending.cause:
            # The worker ended with its connection, before the order to kill it arrived.
            ending = replace(ending, cause=f"{ending.cause}: {self._broken}")
        self._read_rest()
        self._listener.on_exit(ending)

    def _read_rest(self) -> None:  # noqa: B027
        """Handle the messages that the worker sent before it ended."""


class Listener(Protocol):
    """Called on the loop with the messages and the exit of one worker."""

    def on_message(self, message: Message) -> None: ...

    def on_used(self, used: Used) -> None:
        """What the worker has used so far; called every few seconds while it runs (Linux)."""

    def on_exit(self, ending: ExitCause) -> None:
        """The process and its process group are gone; on Linux also processes that it moved out of
        the group, unless they survived SIGKILL for 2 s. Called once, as the last call."""


class Launcher(Protocol):
    """Starts worker processes, and reports their exits."""

    async def open(self, entry: str, payload: bytes) -> str:
        """Prepare to launch workers. Returns a notice for the user, or "".

        Raises LaunchFailed if the data that workers share cannot be loaded.
        """

    def launch(
        self, name: str, listener: Listener, node: str = "", grant: Grant = NOTHING_SAID
    ) -> WorkerHandle:
        """Start a worker on this node; "" where there is only one. Never raises: a failure to
        start is reported as an exit."""

    def learn(self, modules: Sequence[str], took_s: float) -> None:
        """A worker has imported these modules, in at most `took_s`. The launcher may preload them
        for later workers."""

    def processes(self) -> list[Watched]:
        """The processes that are alive and whose pids are known."""

    def kill(self) -> None:
        """Send SIGKILL to every process, without waiting."""

    async def close(self) -> str:
        """End every worker, and wait for a limited time. Returns a warning that names the
        processes that survived SIGKILL, or ""."""
