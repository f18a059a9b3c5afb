"""Whether a lock file is a copy: of one that a live process of this machine holds.

Who copies the folder of a running experiment copies its lock file, but not the lock. Where both
folders are persisted to the same storage, the copy would take that away from the run.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.syncer.uploader.lock_holder import Holder

_LARGEST = 1 << 16


def original_of(path: Path, descriptor: int) -> str:
    """Where the original lies and who holds it, in words; "" where this is the original.

    The copy says the same as the original, down to the moment in which the lock was taken.
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
                return f"{other.parent}, where it is run by {said}"
    return ""


def _is_original(other: Path, content: bytes, ours: os.stat_result) -> bool:
    with suppress(OSError), open(other, "rb") as file:
        is_another = not os.path.samestat(os.fstat(file.fileno()), ours)
        return is_another and file.read(_LARGEST) == content
    return False
