"""Errors of communication between processes."""

from __future__ import annotations

from holdfast.errors import TuneError


class RuntimeFault(TuneError):
    """Base class of the errors in `holdfast.runtime`."""


class WireError(RuntimeFault):
    """The other process sent invalid data, or stopped in the middle of a message."""


class Unheard(RuntimeFault):
    """The controller of an agent that had begun is gone, or was not heard for too long."""


class LaunchFailed(RuntimeFault):
    """No worker can be started.

    `type_name`, `message` and `traceback` describe the error in the process that tried.
    """

    def __init__(self, type_name: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.message = message
        self.traceback = traceback


class NoNodes(LaunchFailed):
    """The cluster supplies no node: no agent could be started, or all were refused.

    The message says what was tried (host, command, its last lines) and what to do.
    """

    def __init__(self, message: str) -> None:
        super().__init__(type(self).__name__, message)
        self.args = (message,)
