"""Damaged segments of the journal from storage, which has them as they were sealed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from holdfast.experiment.doctor.findings import Deed
from holdfast.experiment.doctor.rebuilding import Rebuilt, put
from holdfast.experiment.doctor.storage import StorageTree
from holdfast.experiment.folder.layout import JOURNAL, Layout
from holdfast.experiment.records.segments import look
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.journal.journal import segment_name, segments
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import Store


def bring_segments(remote: Location, layout: Layout, stored: StorageTree) -> Iterator[Deed]:
    """A segment that is published was sealed: it is the one that is damaged, or missing, here.

    Raises StorageError, OSError.
    """
    for name in _wanted(layout.journal, stored):
        data = with_store(remote, partial(_read, key=f"{JOURNAL}/{name}"))
        made = Rebuilt(number=int(Path(name).stem), data=data, how="from storage")
        yield put(layout.journal, made)


async def _read(store: Store, key: str) -> bytes:
    return await store.read(key)


def _wanted(journal: Path, stored: StorageTree) -> list[str]:
    """What is missing here below the newest segment, or is not whole, and is whole there."""
    here = {segment_name(number) for number in segments(journal)}
    damaged = {found.name for found in look(journal) if not found.is_whole}
    newest = max(here, default="")
    published = set(stored.segments) - set(stored.bad_segments)
    return sorted(
        name for name in published if name in damaged or (name not in here and name < newest)
    )
