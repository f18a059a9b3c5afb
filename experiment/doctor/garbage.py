"""Finds what nothing needs: leftovers of dead processes, and checkpoints that no record names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.doctor import checkpoints
from holdfast.experiment.doctor.findings import Finding, Remedy, note
from holdfast.experiment.doctor.replayed import ReplayedExperiment, replay_chapter
from holdfast.experiment.doctor.tree import Tree
from holdfast.experiment.folder.layout import CHECKPOINT_PREFIX, JOURNAL, PARAMS, STAGING, Layout
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.files.tree import bytes_below
from holdfast.text.values import size

_LEFTOVER = "left by a process that died while it wrote, copied or removed it"
_UNNAMED = "a checkpoint that no record names: superseded, dropped, or never reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A file or folder that nothing needs; `where` is its path inside the experiment."""

    where: str
    why: str
    kind: str
    size_bytes: int


def here(tree: Tree) -> list[Garbage]:
    """Everything in the tree on this machine that nothing needs.

    Includes checkpoints only if every record can be read, because an unreadable one may name them.
    Raises OSError.
    """
    layout = tree.layout
    experiments = _experiments(tree)
    folders = {dirname for replayed in experiments for dirname in replayed.dirnames}
    unnamed: list[str] = []
    for replayed in experiments:
        if tree.is_damaged or replayed.refusal:
            continue
        unnamed += checkpoints.unnamed(replayed, checkpoints.folders(layout, replayed))
    found = [
        _garbage(layout, where, "leftover", _LEFTOVER)
        for where in _leftovers(layout, folders)
        if where.rpartition("/")[0] not in unnamed
    ]
    return found + [_garbage(layout, where, "checkpoint-unnamed", _UNNAMED) for where in unnamed]


def judge(found: Iterable[Garbage]) -> Iterator[Finding]:
    for one in found:
        yield note(one.kind, one.where, f"{one.why} ({size(one.size_bytes)})", remedy=Remedy.GC)


def strangers(tree: Tree) -> Iterator[Finding]:
    """Folders that look like a trial's but belong to no known trial. They are kept."""
    known = trial_folders(tree)
    for name in _folders(tree.layout.root):
        if name not in known and (tree.layout.root / name / PARAMS).is_file():
            yield note(
                "folder-unknown",
                name,
                "it looks like a trial's folder, but no record names it: it is yours, or "
                "its records are lost",
                advice="It is left untouched",
            )


def trial_folders(tree: Tree) -> set[str]:
    """The folders of the trials of all experiments in the directory."""
    return {dirname for replayed in _experiments(tree) for dirname in replayed.dirnames}


def _experiments(tree: Tree) -> list[ReplayedExperiment]:
    """All experiments of the directory; the newest is already read."""
    earlier = [replay_chapter(tree.layout.journal, chapter) for chapter in tree.chapters[:-1]]
    return [replayed for replayed in (*earlier, tree.replayed) if replayed is not None]


def _leftovers(layout: Layout, trial_folders: Iterable[str]) -> Iterator[str]:
    """Incomplete files and half-deleted folders, which have names that only holdfast uses."""
    yield from _named_so(layout.root, "")
    yield from _named_so(layout.journal, JOURNAL)
    for name in sorted(trial_folders):
        folder = layout.root / name
        yield from _named_so(folder, name)
        for below in _folders(folder):
            if below.startswith(CHECKPOINT_PREFIX):
                yield from _named_so(folder / below, f"{name}/{below}")
            elif below == STAGING:
                staged = sorted(os.listdir(folder / below))
                yield from (f"{name}/{below}/{entry}" for entry in staged)


def _named_so(folder: Path, above: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in filter(is_leftover, names):
        yield f"{above}/{name}" if above else name


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _garbage(layout: Layout, where: str, kind: str, why: str) -> Garbage:
    size_bytes = bytes_below(str(layout.root / where))
    return Garbage(where=where, why=why, kind=kind, size_bytes=size_bytes)
