"""Finds what is published in storage, and downloads it to this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.experiment.folder.layout import (
    CALLBACKS,
    HEAD,
    JOURNAL,
    SET_ASIDE,
    TRAINER,
    TUNER,
    Layout,
)
from holdfast.experiment.records.journal_start import find_beginning
from holdfast.experiment.records.mirror_note import mark
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import NotStored, StorageError
from holdfast.syncer.files.durable import make_folder, unique, write_atomic
from holdfast.syncer.files.tree import read_regular
from holdfast.syncer.journal.journal import segments
from holdfast.syncer.journal.stretches import (
    HEAD_BYTES,
    Stretch,
    is_here,
    is_segment,
    join_stretches,
    parse_head,
    parse_stretch_name,
    stretches_of,
)
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import ObjectInfo, Store, for_each, read_object
from holdfast.syncer.uploader.lock import is_alive
from holdfast.trees import try_to_delete

_AT_ONCE = 16
_PARTIAL = ".partial-"


def published(remote: Location) -> dict[str, Any] | None:
    """The head in storage; None if there is none to compare the local tree with."""
    head = with_store(remote, read_head)
    return head if head is not None and head["epoch"] else None


def has_all(layout: Layout, head: Mapping[str, Any]) -> bool:
    """Whether the tree here has the whole published journal."""
    return all(is_here(layout.journal, stretch) for stretch in stretches_of(head))


def fetch_state(
    layout: Layout, remote: Location, aside: Path | None = None, *, mode: int = 0o700
) -> bool:
    """Download journal and tuner.pkl; False if there is no experiment.

    They appear here only when they are complete: half a journal after a crash would look like an
    older one. The files here are moved to `aside`, if given. A folder that is created for it has
    the permissions `mode`.
    """
    root = layout.root
    staging = Layout(root.with_name(f"{root.name}{_PARTIAL}{os.getpid()}"))
    _clear_partials(root)
    try:
        make_folder(staging.root, mode)
        found: bool = with_store(remote, lambda store: _download(store, staging))
        if found:
            mark(staging, remote, root)
            if aside is not None:
                _set_aside(layout, aside)
            _move_in(staging, layout)
    finally:
        try_to_delete(staging.root)
    return found


def _clear_partials(root: Path) -> None:
    """Remove downloads whose process died, but not those of a running process."""
    start = f"{root.name}{_PARTIAL}"
    for path in root.parent.iterdir() if root.parent.exists() else ():
        pid = path.name.removeprefix(start)
        if path.name.startswith(start) and pid.isdecimal() and not _is_another(int(pid)):
            try_to_delete(path)


def _is_another(pid: int) -> bool:
    return pid != os.getpid() and is_alive(pid)


def _set_aside(layout: Layout, aside: Path) -> None:
    """Move everything except the locks, which are held, and the socket of a killed run; first the
    journal, which makes the folder an experiment."""
    aside.mkdir()
    layout.journal.rename(aside / JOURNAL)
    for path in list(layout.root.iterdir()):
        if path not in (*layout.locks, layout.control):
            path.rename(aside / path.name)


def _move_in(staging: Layout, layout: Layout) -> None:
    """Move the journal last into an existing directory: it makes the folder an experiment."""
    if not layout.root.exists():
        staging.root.rename(layout.root)
        return
    if find_beginning(layout.journal) is not None:
        return  # another process was faster
    for source, target in (
        (staging.tuner, layout.tuner),
        (staging.trainer, layout.trainer),
        (staging.callbacks, layout.callbacks),
        (staging.mirror_at, layout.mirror_at),
        (staging.mirror_of, layout.mirror_of),
    ):
        if source.exists():
            source.replace(target)
    if layout.journal.exists() and any(layout.journal.iterdir()):
        aside = layout.root.with_name(f"{layout.root.name}{SET_ASIDE}{unique()[:6]}")
        aside.mkdir()
        layout.journal.rename(aside / JOURNAL)
    staging.journal.rename(layout.journal)


async def read_head(store: Store) -> dict[str, Any] | None:
    """The published head; without a readable one, the segments in storage.

    A local experiment that was copied to storage has no head.
    """
    try:
        return parse_head(await read_object(store, HEAD, HEAD_BYTES))
    except (NotStored, ValueError):
        return listed_head(await store.list(JOURNAL))


def listed_head(entries: Iterable[ObjectInfo]) -> dict[str, Any] | None:
    """A head with all segments in storage; None if there are none."""
    found = [
        {"name": entry.name, "size": entry.size}
        for entry in entries
        if entry.key == f"{JOURNAL}/{entry.name}" and is_segment(entry.name)
    ]
    return {"epoch": "", "segments": found} if found else None


async def fetch_journal(store: Store, journal: Path) -> bool:
    """Download the published part of the journal; False if there is none. Raises StorageError.

    The experiment may be running: objects that a head named are removed once a newer head has
    replaced them.
    """
    head = await read_head(store)
    while head is not None:
        _empty(journal)
        fetch = partial(_download_stretch, store, journal)
        try:
            await for_each(fetch, stretches_of(head), at_once=_AT_ONCE)
        except NotStored:
            older, head = head, await read_head(store)
            if head == older:
                raise
        else:
            join_stretches(journal)
            return True
    return False


async def refresh_journal(
    store: Store, journal: Path, known: dict[str, tuple[int, int | None]]
) -> bool:
    """Bring a downloaded journal up to date: only new objects are downloaded, and their stretches
    are not joined. False if nothing is published. Raises StorageError.

    `known` has the size and checksum of each object here; it is empty at the first call. The
    folder exists.
    """
    head = await read_head(store)
    while head is not None:
        wanted = {one.name: one for one in stretches_of(head)}
        news = [one for one in wanted.values() if known.get(one.name) != (one.size, one.crc32)]
        try:
            await for_each(partial(_download_stretch, store, journal), news, at_once=_AT_ONCE)
        except NotStored:
            older, head = head, await read_head(store)
            if head == older:
                raise
            continue
        _remove(journal, known.keys() - wanted.keys())
        known.clear()
        known.update({one.name: (one.size, one.crc32) for one in wanted.values()})
        return True
    return False


async def fetch_earlier(store: Store, journal: Path) -> None:
    """Add the segments before those that `fetch_journal` has downloaded. Raises StorageError.

    A head names only the segments of the newest experiment; those of earlier ones stay in storage.
    """
    first = min(segments(journal), default=0)
    parsed = [(parse_stretch_name(entry.name), entry.name) for entry in await store.list(JOURNAL)]
    names = [name for found, name in parsed if found is not None and found[0] < first]

    async def fetch(name: str) -> None:
        await store.get(f"{JOURNAL}/{name}", journal / name)

    await for_each(fetch, names, at_once=_AT_ONCE)
    join_stretches(journal)


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _empty(folder: Path) -> None:
    try_to_delete(folder)
    folder.mkdir(parents=True)


async def _download(store: Store, layout: Layout) -> bool:
    if not await fetch_journal(store, layout.journal):
        return False
    for name in (TUNER, TRAINER, CALLBACKS):
        # tuner.pkl is needed only if restore() is not passed a trainable; then its absence is
        # reported.
        with suppress(NotStored):
            write_atomic(layout.root / name, await store.read(name))
    return True


async def _download_stretch(store: Store, journal: Path, stretch: Stretch) -> None:
    """Download a stretch. Its object may be longer than the head says: the rest belongs to a newer
    head."""
    key, target = f"{JOURNAL}/{stretch.name}", journal / stretch.name
    await store.get(key, target)
    if not stretch.is_of(read_regular(target)):
        target.unlink()
        raise StorageError("read", key, "its size or checksum differs from that in the head")
    os.truncate(target, stretch.size)
