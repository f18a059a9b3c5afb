"""The scratch folder of an agent: <root>/holdfast-nodes-<user>/<process>-<random>.

The agent keeps it locked as long as it lives. A folder without a lock belongs to an agent that was
killed: the next agent on the node removes it. What `keep` has moved to
<root>/holdfast-kept-<user>/<process>-<random> stays until the user removes it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.runtime.objects import LockedFolder, make_own, remove_unlocked


@contextmanager
def scratch_folder(root: str = "") -> Iterator[str]:
    """A new folder that only this user can read, removed at the end. `root` is an existing folder,
    by default that for temporary files. Raises OSError."""
    root = os.path.abspath(root or tempfile.gettempdir())
    base = os.path.join(root, f"holdfast-nodes-{os.getuid()}")
    remove_unlocked(base)
    folder = LockedFolder(base)
    try:
        yield folder.path
    finally:
        folder.remove()


def keep(folder: str, part: str) -> str:
    """Move a part of an agent's scratch folder to where no agent removes it, with one rename.
    Returns its new path, which only this user can read. Raises OSError."""
    root = os.path.dirname(os.path.dirname(folder))
    base = os.path.join(root, f"holdfast-kept-{os.getuid()}")
    make_own(base)
    kept = os.path.join(base, os.path.basename(folder))
    os.rename(os.path.join(folder, part), kept)
    for above in (base, root):
        _force(above)
    return kept


def _force(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
