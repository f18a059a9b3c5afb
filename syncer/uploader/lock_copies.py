"""Detects that a lock file is a copy of one that a live process of this machine holds.

A copy of a running experiment's folder has the lock file, but not the lock. If both folders upload
to the same storage, a run in the copy would take the storage away from the original run.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.syncer.uploader.lock_holder import Holder

_LARGEST = 1 << 16


def original_of(path: Path, descriptor: int) -> str:
    """The path of the original and its holder, in words; "" if this is the original.

    A copy has the same content, including the time at which the lock was taken.
    """
    import psutil

    said = Holder.read(descriptor)
    if not said.is_controller:
        return ""
    content, ours = os.pread(descriptor, _LARGEST, 0), os.fstat(descriptor)
    with suppress(psutil.Error, OSError):
        for opened in psutil.Process(said.pid).open_files():
            other = Path(opened.path)
            if other.name == path.name and _is_original(other, content, ours):
                return f"{other.parent}, which is in use by {said}"
    return ""


def _is_original(other: Path, content: bytes, ours: os.stat_result) -> bool:
    with suppress(OSError), open(other, "rb") as file:
        is_another = not os.path.samestat(os.fstat(file.fileno()), ours)
        return is_another and file.read(_LARGEST) == content
    return False
