"""Reads and judges what storage has of an experiment, compared with the tree on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import HEAD, JOURNAL, RESULTS, TRAINER, TUNER, Layout
from holdfast.experiment.records.opened import has_all, listed_head
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.results.doctor import examination
from holdfast.results.doctor.examination import Garbage
from holdfast.results.doctor.findings import Finding, Remedy, note, problem, warning
from holdfast.results.doctor.tree import Tree, tree_at
from holdfast.syncer.checkpoint import download
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.manifest import Manifest
from holdfast.syncer.errors import ManifestMismatch, NotStored, StorageRefused
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.journal.journal import MAGIC
from holdfast.syncer.journal.stretches import (
    HEAD_BYTES,
    join_stretches,
    parse_head,
    parse_stretch_name,
    read_stretch,
    segment_size,
    stretch_name,
    stretch_of,
)
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim
from holdfast.syncer.stores.store import ObjectInfo, Store, for_each, read_object
from holdfast.text.values import size

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
        """The reason why a checkpoint cannot be read from storage; "" if it can."""
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
        stored.published = tree_at(copy)
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
            with tempfile.TemporaryDirectory(
                prefix="holdfast-doctor-", ignore_cleanup_errors=True
            ) as scratch:
                found = bring_checkpoint(remote.child(folder), Path(scratch) / "checkpoint")
            size += sum(entry.size for entry in found.entries)
        except (ManifestMismatch, NotStored) as error:
            stored.broken[folder] = error.cause
    return size


def bring_checkpoint(location: Location, target: Path) -> download.Remote:
    """Download a checkpoint to the new directory `target`, and compare every byte with its
    manifest. Raises NotStored if it has none, ManifestMismatch or another StorageError."""

    async def bring(store: Store) -> download.Remote:
        found = await download.look(store)
        if found.manifest is None:
            raise NotStored("read", store.where, "it has no manifest")
        await download.fetch(store, found, target)
        return found

    return with_store(location, bring)


def committed(stored: StorageTree) -> list[examination.NamedCheckpoint]:
    """The checkpoints that a restore from storage would look for there."""
    if stored.published.replayed is None:
        return []
    named = examination.named_checkpoints(stored.published.replayed)
    return [one for one in named if one.record.committed and not one.record.stays_here]


PREFIX = "storage: "


def storage_findings(stored: StorageTree, tree: Tree | None, *, in_use: bool) -> Iterator[Finding]:
    """Check storage. `in_use`: a process on this machine runs it and may still upload what is
    missing."""
    yield from _judge_head(stored, tree)
    yield from _judge_segments(stored, tree)
    if tree is not None and (apart := _apart(stored, tree)):
        yield apart
        return
    if not in_use:
        yield from _claimed_since(stored)
    yield from _judge_checkpoints(stored, tree, in_use=in_use)
    yield from _judge_files(stored, tree, in_use=in_use)
    if tree is not None and (behind := records_ahead(stored, tree)):
        yield (note if in_use else warning)(
            "records-not-published",
            f"{PREFIX}{JOURNAL}",
            f"{behind} bytes of records are on this machine only",
            remedy=Remedy.SYNC,
        )


def in_storage(finding: Finding) -> Finding:
    """The same finding, about an object in storage."""
    return replace(finding, where=f"{PREFIX}{finding.where}")


def _judge_head(stored: StorageTree, tree: Tree | None) -> Iterator[Finding]:
    remedy = Remedy.NONE if tree is None else Remedy.SYNC
    head = stored.head
    if stored.head_fault:
        advice = "A restore uses the segments that are there. To rewrite the head, run sync "
        advice += "on the machine with the run's directory"
        yield problem(
            "storage-head", f"{PREFIX}{HEAD}", stored.head_fault, advice=advice, remedy=remedy
        )
    elif head is None:
        yield problem(
            "storage-empty",
            f"{PREFIX}{HEAD}",
            "nothing of the experiment was published: there is no head and no journal",
            advice="Run sync on the machine that ran the experiment",
            remedy=remedy,
        )
    elif head["epoch"] and head["epoch"] not in stored.entries:
        yield warning(
            "storage-claim",
            f"{PREFIX}{head['epoch']}",
            "the claim of the run that published last is gone: objects may be missing from this "
            "storage",
        )


def _claimed_since(stored: StorageTree) -> Iterator[Finding]:
    """A note that a later restore has claimed the storage without publishing anything."""
    published = Claim.parse(stored.head["epoch"]) if stored.head is not None else None
    newest = stored.newest_claim
    if published is not None and newest is not None and newest.number > published.number:
        at = stored.entries[newest.key].modified
        when = "" if at is None else f" at {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
        yield note(
            "storage-claimed",
            f"{PREFIX}{newest.key}",
            f"it was claimed{when}, after the run that published last: another machine may be "
            "running it, or died before it published anything",
        )


def _judge_segments(stored: StorageTree, tree: Tree | None) -> Iterator[Finding]:
    for name, reason in sorted(stored.bad_segments.items()):
        whole = tree is not None and _has(tree, stored.segments[name])
        yield problem(
            "storage-segment",
            f"{PREFIX}{JOURNAL}/{name}",
            f"a restore from storage fails: {reason}",
            advice=""
            if whole
            else "Replace the segment with a copy: the machine that ran the experiment has one, "
            "if its directory still exists",
            remedy=Remedy.SYNC if whole else Remedy.NONE,
        )
    for finding in stored.published.findings:
        is_journals = finding.kind.startswith("journal-")
        if is_journals and stored.head is not None and stored.head["segments"]:
            yield replace(in_storage(finding), remedy=Remedy.NONE)


def _has(tree: Tree, segment: Mapping[str, Any]) -> bool:
    stretch = stretch_of(segment)
    try:
        return segment_size(tree.layout.journal, stretch.segment) >= stretch.end
    except FileNotFoundError:
        return False


def _apart(stored: StorageTree, tree: Tree) -> Finding | None:
    """A finding if storage and this machine hold different experiments or states: no need to
    compare more."""
    head, replayed = stored.head, tree.replayed
    if head is None or replayed is None or not head["epoch"]:
        return None
    if head["experiment_id"] != replayed.machine.spec.experiment_id:
        return warning(
            "storage-other",
            f"{PREFIX}{HEAD}",
            "storage and this machine hold different experiments of this name",
            advice="Move away the one that you do not want",
        )
    if all(_has(tree, part) for part in stored.segments.values()):
        return None
    return note(
        "storage-ahead",
        f"{PREFIX}{HEAD}",
        "another machine has continued the experiment beyond the tree on this machine",
        advice="A restore downloads the newer state and moves this tree aside",
    )


def _judge_checkpoints(
    stored: StorageTree, tree: Tree | None, *, in_use: bool
) -> Iterator[Finding]:
    promised = {checkpoint.folder: checkpoint for checkpoint in committed(stored)}
    for checkpoint in promised.values():
        if fault := stored.fault(checkpoint.folder):
            yield _broken(
                checkpoint, fault, has_copy=tree is not None and has_whole(tree, checkpoint)
            )
    if tree is None or tree.replayed is None:
        return
    for checkpoint in examination.named_checkpoints(tree.replayed):
        if checkpoint.folder in promised or not stored.fault(checkpoint.folder):
            continue
        is_here = has_whole(tree, checkpoint)
        if checkpoint.was_on_node and not is_here:
            yield examination.finding_on_node(checkpoint, in_use=in_use)
        elif checkpoint.record.stays_here:
            continue
        elif is_here:
            yield _not_uploaded(checkpoint, in_use=in_use)
        elif not (tree.layout.root / checkpoint.folder).is_dir():
            yield examination.unusable(
                checkpoint, "is neither on this machine nor complete in storage"
            )


def has_whole(tree: Tree, checkpoint: examination.NamedCheckpoint) -> bool:
    """True if the tree here has the complete checkpoint that the records name."""
    return checkpoint.folder not in tree.broken and (tree.layout.root / checkpoint.folder).is_dir()


def _broken(checkpoint: examination.NamedCheckpoint, fault: str, *, has_copy: bool) -> Finding:
    return problem(
        "storage-checkpoint",
        f"{PREFIX}{checkpoint.folder}",
        f"{checkpoint.title} cannot be read from storage: {fault}",
        advice="A restore from storage uses the one before it",
        remedy=Remedy.SYNC if has_copy else Remedy.NONE,
    )


def _not_uploaded(checkpoint: examination.NamedCheckpoint, *, in_use: bool) -> Finding:
    return (note if in_use else warning)(
        "not-uploaded",
        f"{PREFIX}{checkpoint.folder}",
        f"{checkpoint.title} ({size(checkpoint.record.size_bytes)}) is on this machine only",
        remedy=Remedy.SYNC,
    )


def _judge_files(stored: StorageTree, tree: Tree | None, *, in_use: bool) -> Iterator[Finding]:
    replayed = stored.published.replayed
    if replayed is None:
        return
    wanted = [
        f"{trial.spec.dirname}/{RESULTS}"
        for trial in replayed.machine.trials.values()
        if replayed.rows.get(trial.trial_id) and trial.status.is_final
    ]
    remedy = Remedy.NONE if tree is None else Remedy.SYNC
    if stored.tuner_fault:
        advice = "A restore from there needs the trainable and param_space"
        yield warning("tuner-file", f"{PREFIX}{TUNER}", stored.tuner_fault, advice=advice)
    for key in [TUNER, *wanted]:
        if key not in stored.entries:
            what = "it is missing: the journal in storage has its content"
            if key == TUNER:
                what = "it is missing: a restore from there needs the trainable"
            yield (note if in_use else warning)(
                "storage-file", f"{PREFIX}{key}", what, remedy=remedy
            )


def records_ahead(stored: StorageTree, tree: Tree) -> int:
    """The number of bytes of the journal here that are not published."""
    published: dict[int, int] = {}
    for stretch in map(stretch_of, stored.segments.values()):
        published[stretch.segment] = max(stretch.end, published.get(stretch.segment, 0))
    readable = tree.chapters[-1].readable if tree.chapters else ()
    return sum(
        max(0, segment.end - published.get(segment.number, len(MAGIC))) for segment in readable
    )


def storage_garbage(stored: StorageTree, tree: Tree | None) -> list[Garbage]:
    """Objects that neither the published records nor those on this machine need."""
    unneeded = [
        _garbage(stored, key, "leftover", "left by an interrupted write")
        for key, entry in stored.entries.items()
        if is_leftover(entry.name)
    ]
    experiments = [tree.replayed] if tree is not None and tree.replayed is not None else []
    published = stored.published
    if published.replayed is None or published.is_damaged:
        return unneeded
    if stored.head_fault or (tree is not None and tree.is_damaged):
        return unneeded
    experiments.append(published.replayed)
    unneeded += [
        _garbage(stored, key, "journal-superseded", "it is now part of a longer object")
        for key, entry in stored.entries.items()
        if _is_superseded(stored, key, entry.name)
    ]
    unnamed = [
        set(examination.unnamed_folders(replayed, sorted(stored.checkpoints)))
        for replayed in experiments
    ]
    why = "a checkpoint that no record names"
    unneeded += [
        _garbage(stored, folder, "checkpoint-unnamed", why)
        for folder in sorted(set.intersection(*unnamed))
    ]
    return unneeded


def _is_superseded(stored: StorageTree, key: str, name: str) -> bool:
    """True if it is a later stretch of a segment that the head names as a whole."""
    place = parse_stretch_name(name)
    if place is None or not place[1] or key != f"{JOURNAL}/{name}" or name in stored.segments:
        return False
    return stretch_name(place[0], 0) in stored.segments


def _garbage(stored: StorageTree, where: str, kind: str, why: str) -> Garbage:
    size = sum(
        entry.size
        for key, entry in stored.entries.items()
        if key == where or key.startswith(f"{where}/")
    )
    return Garbage(where=where, kind=kind, why=why, size_bytes=size)
