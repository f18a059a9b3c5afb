"""The names that `ps` and `top` show for holdfast's own processes (Linux).

setproctitle does this too, but every installation would need it, and `top` would show the first 15
bytes of its only text, "holdfast: trial", for all trials.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from holdfast.names import printable

# What the kernel keeps of a process's name.
_NAME_BYTES = 15
# In /proc/self/stat after the name: the addresses where the arguments begin and end.
_BEGIN, _END = 45, 46
# The last byte of the arguments. If it is not NUL, the kernel shows the text before the first NUL.
_MARK = b"."


class Title(NamedTuple):
    """`ps aux` shows "holdfast: kind of" for a process, `top` and `ps -e` "holdfast:short"."""

    kind: str
    of: str = ""
    short: str = ""

    def show(self) -> None:
        """Name this process, which must be one of holdfast's. Does nothing where it cannot."""
        if sys.platform != "linux":
            return
        whole = printable(f"holdfast: {self.kind} {self.of}".rstrip())
        with suppress(OSError):
            name_process(self.short or self.kind)
            begin, end = _arguments()
            room = end - begin - len(_MARK)
            title = whole.encode(errors="replace")[: room - 1]
            if title:
                _write("/proc/self/mem", title.ljust(room, b"\0") + _MARK, begin)


def name_process(short: str) -> None:
    """Set what `top` shows, and leave the command line. Raises OSError."""
    if sys.platform == "linux":
        _write("/proc/self/comm", f"holdfast:{short}".encode(errors="replace")[:_NAME_BYTES])


def _write(path: str, content: bytes, offset: int = 0) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if offset:
            os.lseek(fd, offset, os.SEEK_SET)
        os.write(fd, content)
    finally:
        os.close(fd)


@cache
def _arguments() -> tuple[int, int]:
    """The addresses where the arguments begin and end; forked children have the same."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    return int(fields[_BEGIN]), int(fields[_END])
