"""Which file the user is shown for a failure: one that has something in it."""

from __future__ import annotations

import os


def pointer(log: str, other: str = "") -> str:
    """`see LOG`. Where that file is empty, as is often the stderr of a process that was killed:
    the `other` output of the trial, or that there is none."""
    if not _is_empty(log):
        return f"see {log}"
    name = os.path.basename(log)
    if other and not _is_empty(other):
        return f"its {name} is empty, see {other}"
    return f"it printed nothing to {name}" + (f" and {os.path.basename(other)}" if other else "")


def _is_empty(path: str) -> bool:
    """False for one that is not here: it may lie elsewhere."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False
