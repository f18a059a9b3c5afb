"""Chooses the file to show the user for a failure: one that is not empty."""

from __future__ import annotations

import os


def pointer(log: str, other: str = "") -> str:
    """`see LOG`; if that file is empty, the trial's `other` output, or a note that there is none.

    The stderr of a process that was killed is often empty.
    """
    if not _is_empty(log):
        return f"see {log}"
    name = os.path.basename(log)
    if other and not _is_empty(other):
        return f"its {name} is empty, see {other}"
    return f"it printed nothing to {name}" + (f" and {os.path.basename(other)}" if other else "")


def _is_empty(path: str) -> bool:
    """False for a file that is not on this machine."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False
