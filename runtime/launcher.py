"""Where workers come from: the protocols that a launcher keeps to.

`holdfast.runtime.local_launcher` has the one for this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.runtime.exit_cause import ExitCause
from holdfast.runtime.stopped import Watched
from holdfast.runtime.wire import Message


class WorkerHandle(Protocol):
    """The controller's handle of one worker process.

    `pid` is 0 until the first message arrives, whose sender the kernel names. A message from its
    parent for that alone would add 0.1 ms to each start.
    """

    name: str

    @property
    def pid(self) -> int: ...

    def confirm(self, told: int) -> None:
        """Raises ValueError if the worker has another pid than `told`."""

    def send(self, message: Message) -> None: ...

    def kill(self, why: str) -> None:
        """End it and everything that it started. `why` is reported as the cause."""

    def signal(self, signum: int) -> None:
        """`process_control.STOP` asks the worker to clean up and exit."""


class Listener(Protocol):
    """Hears, on the loop, what happens to one worker."""

    def on_message(self, message: Message) -> None: ...

    def on_exit(self, ending: ExitCause) -> None:
        """The process and its process group are gone; on Linux also processes that it moved out of
        the group, if SIGKILL ended them within 2 s. Called once, and last."""


class Launcher(Protocol):
    """Starts worker processes somewhere, and says when they are gone."""

    async def open(self, entry: str, payload: bytes) -> str:
        """Get ready to launch. Returns a notice for the user, mostly "".

        Raises LaunchFailed if what the workers share cannot be loaded.
        """

    def launch(self, name: str, listener: Listener) -> WorkerHandle:
        """Never raises: `listener` hears of a worker that cannot be started as of an exit."""

    def learn(self, modules: Sequence[str], took_s: float) -> None:
        """A worker has imported these, in `took_s` at most. Have them ready for later workers,
        where that is possible."""

    def processes(self) -> list[Watched]:
        """The known processes that are alive."""

    def kill(self) -> None:
        """Send SIGKILL to every process, and wait for none."""

    async def close(self) -> str:
        """End every worker, and wait for a while until all are gone. Returns which processes
        still exist after SIGKILL, mostly ""."""
