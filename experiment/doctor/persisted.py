"""Judges what storage holds, compared with the tree on this machine if there is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from holdfast.experiment.doctor import checkpoints
from holdfast.experiment.doctor.findings import Finding, Remedy, note, problem, warning
from holdfast.experiment.doctor.garbage import Garbage
from holdfast.experiment.doctor.storage import StorageTree, committed
from holdfast.experiment.doctor.tree import Tree
from holdfast.experiment.folder.layout import HEAD, JOURNAL, RESULTS, TUNER
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.journal.journal import MAGIC
from holdfast.syncer.journal.stretches import (
    parse_stretch_name,
    segment_size,
    stretch_name,
    stretch_of,
)
from holdfast.syncer.stores.owned_store import Claim
from holdfast.text.values import size

PREFIX = "storage: "


def judge(stored: StorageTree, tree: Tree | None, *, in_use: bool) -> Iterator[Finding]:
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
    for checkpoint in checkpoints.named(tree.replayed):
        if checkpoint.folder in promised or not stored.fault(checkpoint.folder):
            continue
        is_here = has_whole(tree, checkpoint)
        if checkpoint.was_on_node and not is_here:
            yield checkpoints.on_node(checkpoint, in_use=in_use)
        elif checkpoint.record.stays_here:
            continue
        elif is_here:
            yield _not_uploaded(checkpoint, in_use=in_use)
        elif not (tree.layout.root / checkpoint.folder).is_dir():
            yield _nowhere(checkpoint)


def has_whole(tree: Tree, checkpoint: checkpoints.NamedCheckpoint) -> bool:
    """Whether the tree here has the complete checkpoint that the records name."""
    return checkpoint.folder not in tree.broken and (tree.layout.root / checkpoint.folder).is_dir()


def _broken(checkpoint: checkpoints.NamedCheckpoint, fault: str, *, has_copy: bool) -> Finding:
    return problem(
        "storage-checkpoint",
        f"{PREFIX}{checkpoint.folder}",
        f"{checkpoint.title} cannot be read from storage: {fault}",
        advice="A restore from storage uses the one before it",
        remedy=Remedy.SYNC if has_copy else Remedy.NONE,
    )


def _not_uploaded(checkpoint: checkpoints.NamedCheckpoint, *, in_use: bool) -> Finding:
    return (note if in_use else warning)(
        "not-uploaded",
        f"{PREFIX}{checkpoint.folder}",
        f"{checkpoint.title} ({size(checkpoint.record.size_bytes)}) is on this machine only",
        remedy=Remedy.SYNC,
    )


def _nowhere(checkpoint: checkpoints.NamedCheckpoint) -> Finding:
    return problem(
        "checkpoint-broken",
        checkpoint.folder,
        f"{checkpoint.title} is neither on this machine nor complete in storage",
        advice="A resumed trial uses the newest complete checkpoint before it. repair removes "
        "this one",
        remedy=Remedy.REPAIR,
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
    """How many bytes of the journal here are not published."""
    published: dict[int, int] = {}
    for stretch in map(stretch_of, stored.segments.values()):
        published[stretch.segment] = max(stretch.end, published.get(stretch.segment, 0))
    readable = tree.chapters[-1].readable if tree.chapters else ()
    return sum(
        max(0, segment.end - published.get(segment.number, len(MAGIC))) for segment in readable
    )


def garbage(stored: StorageTree, tree: Tree | None) -> list[Garbage]:
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
        set(checkpoints.unnamed(replayed, sorted(stored.checkpoints))) for replayed in experiments
    ]
    why = "a checkpoint that no record names"
    unneeded += [
        _garbage(stored, folder, "checkpoint-unnamed", why)
        for folder in sorted(set.intersection(*unnamed))
    ]
    return unneeded


def _is_superseded(stored: StorageTree, key: str, name: str) -> bool:
    """Whether it is a later stretch of a segment that the head names as a whole."""
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
