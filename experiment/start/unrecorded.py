"""Removes the folder of a `fit()` that ended before its first record: a refused one, for instance.

Otherwise each refused call would leave an experiment that holds nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.experiment.doctor.erasing import erase_tree
from holdfast.experiment.folder.containment import is_written
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal_start import JournalUnreadable, find_beginning
from holdfast.syncer.errors import StorageError
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.files.threads import ThreadCall
from holdfast.syncer.uploader.lock import ExperimentLock

_REMOVED_WITHIN_S = 5.0


@contextmanager
def none_stays(layout: Layout) -> Iterator[None]:
    """If the block raises before anything is recorded, remove the folder, unless it was there
    before the block or holds files of others."""
    if layout.root.exists():
        yield
        return
    try:
        yield
    except BaseException:
        # What cannot be removed now, `holdfast rm` removes. The disk may not answer.
        removal = ThreadCall(lambda: _remove(layout))
        if removal.has_ended(_REMOVED_WITHIN_S):
            with suppress(StorageError, OSError, JournalUnreadable):
                removal.result()
        raise


def _remove(layout: Layout) -> None:
    if not layout.root.exists():
        return
    lock = ExperimentLock(layout.lock, deadline_s=0.0)  # no process of the run may still write
    try:
        names = os.listdir(layout.root)
        is_ours = all(is_written(name) or is_leftover(name) for name in names)
        if is_ours and find_beginning(layout.journal) is None:
            erase_tree(layout.root)
    finally:
        lock.release()
