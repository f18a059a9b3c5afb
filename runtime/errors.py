"""What can go wrong between processes."""

from __future__ import annotations

from holdfast.errors import TuneError


class RuntimeFault(TuneError):
    """The base of all that this room raises."""


class WireError(RuntimeFault):
    """Bytes that are no frame: the other side is not one of ours, or is broken."""


class LaunchFailed(RuntimeFault):
    """No worker can be started at all; carries what the process that tried said.

    `type_name`, `message` and `traceback` are those of the error there.
    """

    def __init__(self, type_name: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.message = message
        self.traceback = traceback
