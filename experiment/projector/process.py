"""The projector's process: how it starts, and when it begins to read."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.connection import serve
from holdfast.experiment.projector.leftovers import remove_leftovers
from holdfast.experiment.projector.projector import ProjectorSettings
from holdfast.runtime.process_control import give_way
from holdfast.runtime.transport import Channel, remove_left
from holdfast.syncer.files.durable import wait_at_most
from holdfast.syncer.uploader.lock import LockLost, check_ownership

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
