"""Makes this process fit for threads and event loops, whatever its script or launcher did."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from holdfast.errors import TuneError

_STANDARD = (0, 1, 2)


def make_usable() -> None:
    """Replace hooks that are None, and open the standard descriptors that are closed.

    Python starts no thread if `sys.excepthook` or `threading.excepthook` is None. A file that gets
    a standard descriptor would receive what programs print; libuv aborts when it closes one.
    """
    modules: list[Any] = [sys, sys.modules.get("threading")]
    for module in filter(None, modules):
        if getattr(module, "excepthook", None) is None:
            module.excepthook = module.__excepthook__
    for fd in _STANDARD:
        try:
            os.fstat(fd)
        except OSError:
            # The lowest free descriptor is this one. Children inherit it like an ordinary one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def fault_of_start(error: Exception) -> TuneError | None:
    """The error in words, if its cause is how this process was started."""
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return TuneError(
            f"{error.object!a} is not UTF-8 text and cannot be stored: choose another name or path"
        )
    if isinstance(error, FileNotFoundError):
        if not os.path.exists("/proc/self") and str(error.filename).startswith("/proc/"):
            return TuneError("holdfast needs /proc: mount it (mount -t proc proc /proc)")
        if error.filename is None and not _has_directory():
            return TuneError("the working directory has been removed: change to another one (cd)")
    return None


def _has_directory() -> bool:
    with suppress(OSError):
        os.getcwd()
        return True
    return False
