"""Errors of communication between processes."""

from __future__ import annotations

from holdfast.errors import TuneError


class RuntimeFault(TuneError):
    """Base class of the errors in `holdfast.runtime`."""


class WireError(RuntimeFault):
    """The other process sent invalid data, or stopped in the middle of a message."""


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
    """No node of a cluster can be had: the message says what was tried."""
