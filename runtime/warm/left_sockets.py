"""Removes the sockets of a controller that was killed: programs that copy its folder, such as
`shutil.copytree`, fail at a socket."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress

from holdfast.runtime.transport import readable

_DIES_WITHIN_S = 1.0


def remove_left(paths: Sequence[str], controller: int) -> None:
    """Remove the sockets at these paths if the process with the pid `controller`, this one's
    parent, has died. Anything else there stays."""
    if not _has_died(controller):
        return
    for path in paths:
        with suppress(OSError):  # it is gone already, or its folder is
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)


def _has_died(pid: int) -> bool:
    """Whether a process is dead. Its connections end a moment before itself."""
    if sys.platform == "linux":
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return readable(descriptor, _DIES_WITHIN_S)
        finally:
            os.close(descriptor)
    else:
        return os.getppid() != pid
