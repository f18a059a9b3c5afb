"""The projector's process: its start, and its connection to the controller."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.folders import remove_leftovers
from holdfast.experiment.projector.projector import Pace, Projector, ProjectorSettings
from holdfast.runtime.process_control import give_way
from holdfast.runtime.transport import Channel, remove_left
from holdfast.syncer.files.durable import wait_at_most
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.uploader.lock import LockLost, check_ownership

_TELL_EVERY_S = 1.0


class ProjectorConnection(Protocol):
    """A connection to the controller."""

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        """The next message; None once the controller is gone. Raises TimeoutError."""

    def send(self, message: list[Any]) -> None:
        """Send a message. Raises ConnectionError if the controller is gone."""


def serve(
    connection: ProjectorConnection,
    layout: Layout,
    settings: ProjectorSettings,
    clock: Callable[[], float] = time.monotonic,
    *,
    check_ownership: Callable[[], None] = lambda: None,
) -> bool:
    """Serve the controller until it sends `close`, or until it is gone: False.

    Messages in: `["upto", segment, offset]`, `["close"]`. Messages out: `["trouble", text]` each
    time files cannot be written, and once if a script has files of such names of its own;
    `["progress", bytes, bytes in all]` of the journal once a second; with `tells_written` as often
    `["written", segment, offset]`: all files are as the journal up to there; `["done",
    is_complete]` after `close`: whether everything is written.
    """
    progress = _Progress(connection, clock)
    return _Server(
        connection,
        Projector(layout, settings, clock, check_ownership=check_ownership, progress=progress),
        Pace(_TELL_EVERY_S, clock, at_once=True) if settings.tells_written else None,
    ).serve()


class _Progress:
    """Reports the projector's progress through a long journal once a second."""

    def __init__(self, connection: ProjectorConnection, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock
        self._told_at = clock()

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        if now - self._told_at >= _TELL_EVERY_S:
            self._told_at = now
            with suppress(ConnectionError):
                self._connection.send(["progress", done, total])


class _Server:
    """Handles the controller's messages."""

    def __init__(
        self, connection: ProjectorConnection, projector: Projector, telling: Pace | None
    ) -> None:
        self._connection = connection
        self._projector = projector
        self._telling = telling
        self._troubled = self._told_kept = False

    def serve(self) -> bool:
        while True:
            match self._next():
                case ["upto", int(segment), int(offset)]:
                    stop = Position(segment, offset)
                    self._attempt(partial(self._projector.catch_up, stop), self._projector.tend)
                    self._tell_written()
                case ["tick"]:
                    self._attempt(self._projector.tend)
                case None:
                    self._finish()
                    return False
                case ["close"]:
                    self._finish()
                    self._send(["done", not self._troubled])
                    return True
                case unknown:
                    raise ValueError(f"the projector was sent {unknown!r:.200}")

    def _next(self) -> list[Any] | None:
        """The next message. Of several waiting ones only the last, which includes the others."""
        message = self._receive(self._projector.wait_s)
        while message is not None and message[0] == "upto":
            later = self._receive(0.0)
            if later == ["tick"]:
                break
            message = later
        return message

    def _receive(self, timeout_s: float | None) -> list[Any] | None:
        try:
            return self._connection.receive(timeout_s)
        except TimeoutError:
            return ["tick"]

    def _finish(self) -> None:
        projector = self._projector
        self._attempt(
            projector.catch_up,
            projector.repair,
            projector.sweep,
            projector.snapshot,
        )

    def _attempt(self, *actions: Callable[[], None]) -> None:
        """Run the actions. A full disk or an unreadable journal is reported and retried later.

        Any other error is a bug in holdfast: it is reported and ends the projector.
        """
        trouble = None
        for action in actions:
            try:
                action()
            except OSError as error:
                trouble = f"{error.filename or 'snapshot'}: {error.strerror}"
            except Exception as error:
                self._send(["trouble", f"{type(error).__name__}: {error}"])
                raise
        trouble = trouble or self._projector.trouble
        if trouble and not self._troubled:
            self._send(["trouble", trouble])
        self._troubled = trouble is not None
        if self._projector.kept and not self._told_kept:
            self._told_kept = True
            self._send(["trouble", self._projector.kept])

    def _tell_written(self) -> None:
        if self._telling is None or self._troubled or not self._telling.is_due:
            return
        with self._telling:
            place = self._projector.position
            self._send(["written", place.segment, place.offset])

    def _send(self, message: list[Any]) -> None:
        with suppress(ConnectionError):  # the controller is gone
            self._connection.send(message)


_NICE = 10


def main(channel: Channel) -> None:
    """Main function of the projector's process."""
    # Training has priority over the files.
    give_way(_NICE)
    controller = os.getppid()
    opening = channel.receive()
    if opening is None:
        return
    _, root, settings, (descriptor, said), disk_deadline_s = opening
    layout = Layout(Path(root))
    # Proves that this run still owns the experiment.
    check = partial(check_ownership, layout.lock, descriptor, said)
    # Leftovers do no harm. If the lock is lost, the controller ends the run. Those of trials wait
    # until the projector has read which folders may have any.
    with suppress(OSError, LockLost):
        check()
        remove_leftovers(layout)

    def tell(text: str) -> None:
        with suppress(ConnectionError):  # the controller is gone
            channel.send(["trouble", text])

    wait_at_most(disk_deadline_s, tell)
    # It reads nothing before the controller says how far the journal goes: otherwise an experiment
    # that follows another in the same directory could be mistaken for it.
    if not serve(channel, layout, ProjectorSettings(**settings), check_ownership=check):
        # The warm parent does so, too, where this machine has one. No other run has begun here: it
        # waits for the lock, of which this process has a share.
        remove_left([str(layout.control)], controller)
