"""The process of a service. Apart from `service.py`, because it needs no event loop: most services
import nothing of asyncio, which costs 15 ms of CPU."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib import import_module

from holdfast import started_by_import
from holdfast.forked import close_in_children
from holdfast.runtime import process_control
from holdfast.runtime.process_control import Title
from holdfast.runtime.transport import Channel

# Behind it come the script's arguments: the user's modules may read them when they are imported.
SCRIPTS = "--"


class Inherited:
    """Descriptors that the controller passed to this process only, not to its children."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        self._descriptors = descriptors
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        close_in_children(self)

    def close_in_child(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


def main() -> None:
    """Main function of a service process."""
    entry, title, given = sys.argv[1], Title(*sys.argv[2:5]), sys.argv[5:]
    own = given.index(SCRIPTS)
    fd, parent, *inherited = map(int, given[:own])
    sys.argv = given[own + 1 :]
    process_control.die_with_parent(parent)
    started_by_import.refuse_from_now_on()
    title.show()
    ours = Inherited(inherited)
    # SIGTERM may go to all processes of a job. This process ends with its connection instead.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    module, function = entry.split(":")
    serve = getattr(import_module(module), function)
    # Modules are never garbage. To look for it among them takes 10 ms at each collection, and
    # there are several when the process ends.
    gc.freeze()
    with closing(Channel(fd)) as channel:
        serve(channel)
    del ours
