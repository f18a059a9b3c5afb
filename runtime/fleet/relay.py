"""Relays between the workers of an agent and the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from holdfast.runtime.errors import WireError
from holdfast.runtime.exit_cause import ExitCause
from holdfast.runtime.launcher import WorkerHandle
from holdfast.runtime.usage.used import Used
from holdfast.runtime.wire import Message


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
        self._send(["used", self._name, used.plain()])

    def on_exit(self, ending: ExitCause) -> None:
        self._over()
        used = None if ending.used is None else ending.used.plain()
        self._send(["exit", self._name, {**asdict(replace(ending, used=None)), "used": used}])

    def _tell_pid(self) -> None:
        if not self._is_pid_told and self.worker is not None and self.worker.pid:
            self._is_pid_told = True
            self._send(["pid", self._name, self.worker.pid])
