"""The projector's process: how it starts, and when it begins to read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.connection import serve
from holdfast.experiment.projector.leftovers import remove_leftovers
from holdfast.experiment.projector.projector import ProjectorSettings
from holdfast.runtime.priority import give_way
from holdfast.runtime.transport import Channel
from holdfast.syncer.files.disk_deadline import wait_at_most
from holdfast.syncer.uploader.lock import LockLost, check_ownership

_NICE = 10


class _Begun:
    """A channel whose first message has already been received."""

    def __init__(self, channel: Channel, first: list[Any] | None) -> None:
        self._channel = channel
        self._first = [first]

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        return self._first.pop() if self._first else self._channel.receive(timeout_s)

    def send(self, message: list[Any]) -> None:
        self._channel.send(message)


def main(channel: Channel) -> None:
    """Main function of the projector's process."""
    # Training has priority over the files.
    give_way(_NICE)
    opening = channel.receive()
    check = _ownership_check(opening)
    if opening is not None:
        # Leftovers do no harm. If the lock is lost, the controller ends the run.
        with suppress(OSError, LockLost):
            check()
            remove_leftovers(Layout(Path(opening[1])))
    # Read nothing before the controller says how far the journal goes: otherwise an experiment
    # that follows another in the same directory could be mistaken for it.
    first = channel.receive()
    if opening is None:
        return
    _, root, settings, _, disk_deadline_s = opening

    def tell(text: str) -> None:
        with suppress(ConnectionError):  # the controller is gone
            channel.send(["trouble", text])

    wait_at_most(disk_deadline_s, tell)
    serve(
        _Begun(channel, first),
        Layout(Path(root)),
        ProjectorSettings(**settings),
        check_ownership=check,
    )


def _ownership_check(opening: list[Any] | None) -> Callable[[], None]:
    """The function that proves that this run still owns the experiment."""
    if opening is None:
        return lambda: None
    _, root, _, (descriptor, said), _ = opening
    return partial(check_ownership, Layout(Path(root)).lock, descriptor, said)
