"""What lies in storage elsewhere: the published set, the checkpoints, and whose it is."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.doctor import kept
from holdfast.experiment.doctor.tree import Tree
from holdfast.experiment.doctor.tree import read as read_tree
from holdfast.experiment.folder.layout import HEAD, JOURNAL, TRAINER, TUNER, Layout
from holdfast.experiment.records.published import has_all, read_head
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.syncer.checkpoint import download
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.manifest import Manifest
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageRefused
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.journal.head import HEAD_BYTES, is_segment, parse_head
from holdfast.syncer.journal.stretches import join_stretches, read_stretch, stretch_of
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.plain_files import read_object
from holdfast.syncer.stores.store import ObjectInfo, Store, for_each

_AT_ONCE = 16


@dataclass(slots=True)
class StorageTree:
    """What storage holds of one experiment.

    `segments` are those that the head names, by name; `bad_segments` says why one of them is no
    good. `broken` are checkpoints with a trace there that are not whole, by folder.
    `published` is what the segments tell, `tuner_fault` what is wrong with tuner.pkl.
    """

    entries: dict[str, ObjectInfo]
    head: Mapping[str, Any] | None
    head_fault: str = ""
    bad_segments: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    published: Tree | None = None
    tuner_fault: str = ""
    objects: int = 0

    @property
    def segments(self) -> dict[str, Mapping[str, Any]]:
        return {part["name"]: part for part in (self.head or {}).get("segments", ())}

    @property
    def newest_claim(self) -> str:
        return max((key for key in self.entries if key.startswith(".epochs/")), default="")

    @property
    def checkpoints(self) -> set[str]:
        """The folders that hold something and are named like a checkpoint of a trial."""
        parts = [key.split("/") for key in self.entries]
        return {"/".join(p[:2]) for p in parts if len(p) > 2 and p[1].startswith("checkpoint_")}

    def fault(self, folder: str) -> str:
        """Why a checkpoint cannot be had from there; "" if it can."""
        if f"{folder}/{MANIFEST_NAME}" not in self.entries:
            return "it is not in storage"
        return self.broken.get(folder, "")


def gather(remote: Location, here: Layout | None = None) -> StorageTree:
    """List what is there, and read the journal, tuner.pkl and every manifest.

    What `here` has of the journal stands in for what is damaged there.
    Raises StorageError where the storage does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as folder:
        copy = Layout(Path(folder))
        copy.journal.mkdir()
        stored = with_store(remote, lambda store: _look(store, copy))
        if here is not None:
            for name in stored.bad_segments:
                _stand_in(here, copy, stored.segments[name])
        join_stretches(copy.journal)
        stored.published = read_tree(copy)
        # Snapshots there may be ahead of the journal, whose newest segment is not sealed yet: a
        # restore from storage reads none.
        if TUNER in stored.entries:
            stored.tuner_fault = TunerFile(copy.tuner).fault.replace(f"{copy.root}/", "")
    return stored


def _stand_in(here: Layout, copy: Layout, segment: Mapping[str, Any]) -> None:
    """The same segment from this machine, where it is what the head says."""
    if has_all(here, {"segments": [segment]}):
        data = bytes_of(here, segment)
        (copy.journal / segment["name"]).write_bytes(data)


def bytes_of(layout: Layout, segment: Mapping[str, Any]) -> bytes:
    """What the tree here has of something that a head names. Raises OSError."""
    stretch = stretch_of(segment)
    return read_stretch(layout.journal, stretch.segment, stretch.start, stretch.size)


async def _look(store: Store, copy: Layout) -> StorageTree:
    listed = await store.list("", leftovers=True)
    stored = StorageTree(entries={entry.key: entry for entry in listed}, head=None)
    stored.objects = len(listed)
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
    if stored.head is None:
        stored.head = await read_head(store) if not stored.head_fault else _of_listing(stored)


def _of_listing(stored: StorageTree) -> Mapping[str, Any]:
    """What a restore goes by where the head is damaged: all segments that are there."""
    parts = [
        {"name": entry.name, "size": entry.size}
        for key, entry in stored.entries.items()
        if key == f"{JOURNAL}/{entry.name}" and is_segment(entry.name)
    ]
    return {"epoch": "", "segments": parts}


async def _fetch_segment(store: Store, stored: StorageTree, name: str, copy: Layout) -> None:
    key, part = f"{JOURNAL}/{name}", stored.segments[name]
    try:
        data = await store.read(key)
    except NotStored:
        stored.bad_segments[name] = "it is not there"
        return
    if len(data) < part["size"]:
        stored.bad_segments[name] = f"it has {len(data)} bytes, the head says {part['size']}"
    elif not stretch_of(part).is_of(data):
        stored.bad_segments[name] = "its CRC-32 is not what the head says: its bytes changed"
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
    """Read every byte of these checkpoints and note what is not as the manifest says; returns how
    many bytes were read. Raises StorageError where the storage does not answer."""
    size = 0
    for folder in folders:
        scratch = Path(tempfile.mkdtemp(prefix="holdfast-doctor-"))
        try:
            size += with_store(remote.child(folder), lambda s, d=scratch: _download(s, d))  # type: ignore[misc]
        except (ManifestMismatch, NotStored) as error:
            stored.broken[folder] = error.cause
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return size


async def _download(store: Store, scratch: Path) -> int:
    """Into a new directory below `scratch`, held against the manifest."""
    found = await download.look(store)
    await download.fetch(store, found, scratch / "checkpoint")
    return sum(entry.size for entry in found.entries)


def committed(stored: StorageTree) -> list[kept.NamedCheckpoint]:
    """What a restore from storage would look for there."""
    story = stored.published.story if stored.published is not None else None
    if story is None:
        return []
    named = kept.named(story)
    return [one for one in named if one.record.committed and not one.record.stays_here]
