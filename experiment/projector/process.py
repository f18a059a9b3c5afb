"""The projector as a process: what it is started with, and when it begins to read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.connection import serve
from holdfast.experiment.projector.projector import ProjectorSettings
from holdfast.experiment.projector.sweep import sweep_tree
from holdfast.runtime.priority import give_way
from holdfast.runtime.transport import Channel
from holdfast.syncer.files.disk_deadline import wait_at_most
from holdfast.syncer.uploader.lock import LockLost
from holdfast.syncer.uploader.lock import prove as prove_lock

_NICE = 10


class _Begun:
    """A connection whose first message was looked at already."""

    def __init__(self, channel: Channel, first: list[Any] | None) -> None:
        self._channel = channel
        self._first = [first]

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        return self._first.pop() if self._first else self._channel.receive(timeout_s)

    def send(self, message: list[Any]) -> None:
        self._channel.send(message)


def main(channel: Channel) -> None:
    """Main function of the projector's process."""
    # Whatever it has to write can wait for training.
    give_way(_NICE)
    opening = channel.receive()
    prove = _proof(opening)
    if opening is not None:
        # What is left is in nobody's way; a lock that is lost ends the run elsewhere.
        with suppress(OSError, LockLost):
            prove()
            sweep_tree(Layout(Path(opening[1])))
    # Nothing is read before the controller has said how far the journal goes: an experiment that
    # follows another in the same directory would else be taken for the other.
    first = channel.receive()
    if opening is None:
        return
    _, root, settings, _, disk_deadline_s = opening

    def tell(text: str) -> None:
        with suppress(ConnectionError):  # the controller is gone: nobody is left to tell
            channel.send(["trouble", text])

    wait_at_most(disk_deadline_s, tell)
    serve(
        _Begun(channel, first),
        Layout(Path(root)),
        ProjectorSettings(**settings),
        prove=prove,
    )


def _proof(opening: list[Any] | None) -> Callable[[], None]:
    """How to prove that the experiment is still this incarnation's."""
    if opening is None:
        return lambda: None
    _, root, _, (descriptor, said), _ = opening
    return partial(prove_lock, Layout(Path(root)).lock, descriptor, said)
