"""The interface of launchers, which start worker processes.

`holdfast.runtime.local_launcher` has the launcher for this machine, `holdfast.runtime.fleet` that
for the nodes of a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.dataclass import dataclass
from holdfast.runtime.exit_cause import ExitCause
from holdfast.runtime.stopped import Watched
from holdfast.runtime.usage.used import Used
from holdfast.runtime.wire import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a worker may use: the GPUs with these names (as CUDA_VISIBLE_DEVICES has them), and so
    much memory (0: nothing limits it)."""

    gpus: tuple[str, ...] = ()
    memory_bytes: int = 0


NOTHING_SAID = Grant()


class WorkerHandle(Protocol):
    """The controller's handle of one worker process.

    `pid` is 0 until the first message arrives, whose sender the kernel names. Waiting for the
    parent to report the pid would add 0.1 ms to each start.
    """

    name: str

    @property
    def pid(self) -> int: ...

    def confirm(self, told: int) -> None:
        """Raise ValueError if `told` is not the worker's pid."""

    def send(self, message: Message) -> None: ...

    def kill(self, why: str) -> None:
        """Kill the worker and everything that it started. `why` is reported as the cause."""

    def signal(self, signum: int) -> None:
        """`process_control.STOP` asks the worker to clean up and exit."""


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
