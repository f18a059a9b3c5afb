"""Reads an experiment in storage elsewhere: the published records, checkpoints and claims."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.doctor import checkpoints
from holdfast.experiment.doctor.tree import Tree
from holdfast.experiment.doctor.tree import read as read_tree
from holdfast.experiment.folder.layout import HEAD, JOURNAL, TRAINER, TUNER, Layout
from holdfast.experiment.records.published import has_all, listed_head
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.syncer.checkpoint import download
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.manifest import Manifest
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageRefused
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.journal.stretches import (
    HEAD_BYTES,
    join_stretches,
    parse_head,
    read_stretch,
    stretch_of,
)
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim
from holdfast.syncer.stores.store import ObjectInfo, Store, for_each, read_object

_AT_ONCE = 16


@dataclass(slots=True)
class StorageTree:
    """The contents of storage for one experiment.

    `segments` are those that the head names, by name; `bad_segments` says why one of them is
    unusable. `broken` are incomplete checkpoints, by folder. `published` is the experiment that
    the segments describe, `tuner_fault` what is wrong with tuner.pkl.
    """

    entries: dict[str, ObjectInfo]
    published: Tree
    head: Mapping[str, Any] | None = None
    head_fault: str = ""
    bad_segments: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    tuner_fault: str = ""

    @property
    def segments(self) -> dict[str, Mapping[str, Any]]:
        return {part["name"]: part for part in (self.head or {}).get("segments", ())}

    @property
    def newest_claim(self) -> Claim | None:
        return Claim.newest(self.entries)

    @property
    def checkpoints(self) -> set[str]:
        """The non-empty folders whose names are those of checkpoints of a trial."""
        parts = [key.split("/") for key in self.entries]
        return {"/".join(p[:2]) for p in parts if len(p) > 2 and p[1].startswith("checkpoint_")}

    def fault(self, folder: str) -> str:
        """Why a checkpoint cannot be read from storage; "" if it can."""
        if f"{folder}/{MANIFEST_NAME}" not in self.entries:
            return "it is not in storage"
        return self.broken.get(folder, "")


def gather(remote: Location, here: Layout | None = None) -> StorageTree:
    """List the objects, and read the journal, tuner.pkl and every manifest.

    Segments that are damaged in storage are read from `here`, if it has them. Raises StorageError
    if storage does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as folder:
        copy = Layout(Path(folder))
        copy.journal.mkdir()
        stored = with_store(remote, lambda store: _read_storage(store, copy))
        if here is not None:
            for name in stored.bad_segments:
                _stand_in(here, copy, stored.segments[name])
        join_stretches(copy.journal)
        stored.published = read_tree(copy)
        # Snapshots in storage may be ahead of the journal, whose newest segment is not sealed yet,
        # so a restore from storage reads none.
        if TUNER in stored.entries:
            stored.tuner_fault = TunerFile(copy.tuner).fault.replace(f"{copy.root}/", "")
    return stored


def _stand_in(here: Layout, copy: Layout, segment: Mapping[str, Any]) -> None:
    """Copy a segment from this machine, if it is the one that the head names."""
    if has_all(here, {"segments": [segment]}):
        data = bytes_of(here, segment)
        (copy.journal / segment["name"]).write_bytes(data)


def bytes_of(layout: Layout, segment: Mapping[str, Any]) -> bytes:
    """The bytes on this machine of a segment that a head names. Raises OSError."""
    stretch = stretch_of(segment)
    return read_stretch(layout.journal, stretch.segment, stretch.start, stretch.size)


async def _read_storage(store: Store, copy: Layout) -> StorageTree:
    listed = await store.list("", leftovers=True)
    stored = StorageTree({entry.key: entry for entry in listed}, published=Tree(layout=copy))
    await _read_head(store, stored)
    await for_each(
        lambda name: _fetch_segment(store, stored, name, copy), stored.segments, at_once=_AT_ONCE
    )
    markers = [f"{folder}/{MANIFEST_NAME}" for folder in stored.checkpoints]
    present = [marker for marker in markers if marker in stored.entries]
    await for_each(lambda m: _check_sizes(store, stored, m), present, at_once=_AT_ONCE)
    for name in (TUNER, TRAINER):
        if name in stored.entries:
            await store.get(name, copy.root / name)
    return stored


async def _read_head(store: Store, stored: StorageTree) -> None:
    if HEAD in stored.entries:
        try:
            stored.head = parse_head(await read_object(store, HEAD, HEAD_BYTES))
        except (ValueError, StorageRefused) as error:
            stored.head_fault = f"it cannot be read ({error})"
    if stored.head is None:  # as a restore uses the segments that are there
        stored.head = listed_head(stored.entries.values())


async def _fetch_segment(store: Store, stored: StorageTree, name: str, copy: Layout) -> None:
    key, part = f"{JOURNAL}/{name}", stored.segments[name]
    try:
        data = await store.read(key)
    except NotStored:
        stored.bad_segments[name] = "it is not there"
        return
    if len(data) < part["size"]:
        stored.bad_segments[name] = f"it has {len(data)} bytes, but the head says {part['size']}"
    elif not stretch_of(part).is_of(data):
        stored.bad_segments[name] = "its CRC-32 differs from that in the head: its bytes changed"
    (copy.journal / name).write_bytes(data[: part["size"]])


async def _check_sizes(store: Store, stored: StorageTree, marker: str) -> None:
    folder = marker.removesuffix(f"/{MANIFEST_NAME}")
    sizes = {
        key.removeprefix(f"{folder}/"): entry.size
        for key, entry in stored.entries.items()
        if key.startswith(f"{folder}/")
    }
    try:
        problems = Manifest.from_bytes(await store.read(marker), folder).differences(sizes)
    except NotStored:
        return
    except ManifestMismatch as error:
        problems = list(error.problems)
    if problems:
        stored.broken[folder] = "; ".join(problems[:5])


def download_all(remote: Location, stored: StorageTree, folders: list[str]) -> int:
    """Download and check every byte of these checkpoints; return the number of bytes read.

    Adds damaged checkpoints to `stored.broken`. Raises StorageError if storage does not answer.
    """
    size = 0
    for folder in folders:
        try:
            size += with_store(remote.child(folder), _download)
        except (ManifestMismatch, NotStored) as error:
            stored.broken[folder] = error.cause
    return size


async def _download(store: Store) -> int:
    """Download a checkpoint and check it against its manifest."""
    found = await download.look(store)
    with tempfile.TemporaryDirectory(
        prefix="holdfast-doctor-", ignore_cleanup_errors=True
    ) as scratch:
        await download.fetch(store, found, Path(scratch) / "checkpoint")
    return sum(entry.size for entry in found.entries)


def committed(stored: StorageTree) -> list[checkpoints.NamedCheckpoint]:
    """The checkpoints that a restore from storage would look for there."""
    if stored.published.replayed is None:
        return []
    named = checkpoints.named(stored.published.replayed)
    return [one for one in named if one.record.committed and not one.record.stays_here]
