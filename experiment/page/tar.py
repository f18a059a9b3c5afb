"""A checkpoint as a tar archive, in pieces: no file is held in memory or written."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.experiment.browse.locate import LocatedExperiment
from holdfast.experiment.folder.containment import check_folder
from holdfast.experiment.page.trial_files import (
    Download,
    NotThere,
    pieces_of,
    stored_pieces,
)
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.reading import reading
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.stores.location import Location
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.trial import Trial

_BLOCK: Final = tarfile.BLOCKSIZE
_END: Final = bytes(2 * _BLOCK)
_MOST_FILES: Final = 100_000
_DEEPEST: Final = 100


class _Member(NamedTuple):
    path: str
    size: int
    header: bytes


def checkpoint_tar(experiment: LocatedExperiment, trial: Trial, dirname: str) -> Download:
    """A checkpoint from this machine, or else from storage.

    Raises NotThere, LeadsElsewhere, NotRegular, StorageError, OSError.
    """
    record = next((one for one in trial.checkpoints if one.dirname == dirname), None)
    if record is None:
        raise NotThere(f"trial {trial.trial_id} has no checkpoint {dirname[:100]!r} any more")
    name = f"{trial.trial_id}_{dirname}.tar"
    layout, location = experiment.read.layout, experiment.read.location
    if layout is not None:
        check_folder(layout.trial(trial.spec))
        folder = layout.checkpoint(trial.spec, record)
        if is_here(folder):
            check_folder(folder)
            members = list(_members(_files_in(folder, ""), dirname))
            return _download(name, members, _read_here(folder, members))
    return _stored(experiment, trial, record, location, name)


def is_here(folder: Path) -> bool:
    return os.path.isdir(folder) and not os.path.islink(folder)


def _stored(
    experiment: LocatedExperiment,
    trial: Trial,
    record: CheckpointRecord,
    location: Location,
    name: str,
) -> Download:
    key = f"{trial.spec.dirname}/{record.dirname}"
    is_elsewhere = experiment.reads_storage
    entries = with_store(location, lambda store: store.list(f"{key}/")) if is_elsewhere else []
    # An archive with `..` in it would write outside the folder in which it is unpacked.
    paths = [(entry.key.removeprefix(f"{key}/"), entry.size) for entry in entries]
    found = [one for one in paths if not {"", ".", ".."} & {*one[0].split("/")}]
    if not any(path == MANIFEST_NAME for path, _ in found):  # it is written last
        raise NotThere(_not_reached(experiment, trial, record, is_elsewhere=is_elsewhere))
    own = sorted(one for one in found if one[0] != MANIFEST_NAME)
    members = list(_members(own, record.dirname))
    return _download(name, members, _read_stored(location.child(key), members))


def _not_reached(
    experiment: LocatedExperiment, trial: Trial, record: CheckpointRecord, *, is_elsewhere: bool
) -> str:
    what = f"{record.dirname} of trial {trial.trial_id}"
    if experiment.storage and not is_elsewhere:
        uri = experiment.storage
        return f"{what} is not on this machine: open the page with the URI of its storage, {uri}"
    where = f": it is only on node {record.node}, where it was written" if record.node else ""
    return f"{what} is neither here nor in storage{where}"


def _files_in(folder: Path, prefix: str, depth: int = 0) -> list[tuple[str, int]]:
    """The files below a folder; links, pipes and devices are refused when they are opened."""
    if depth > _DEEPEST:
        raise NotThere(f"{prefix[:100]!r}... is too deep: copy the folder instead")
    found: list[tuple[str, int]] = []
    with os.scandir(folder) as entries:
        known = sorted(entries, key=lambda entry: entry.name)
    for entry in known:
        path = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            found += _files_in(Path(entry.path), f"{path}/", depth + 1)
        elif path != MANIFEST_NAME:
            found.append((path, entry.stat(follow_symlinks=False).st_size))
    return found


def _members(files: Sequence[tuple[str, int]], dirname: str) -> Iterator[_Member]:
    if len(files) > _MOST_FILES:
        raise NotThere(f"{dirname} has {len(files):,} files: copy its folder instead")
    for path, size in files:
        info = tarfile.TarInfo(f"{dirname}/{path}")
        info.size, info.mode = size, 0o644
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        yield _Member(path, size, header)


def _download(name: str, members: Sequence[_Member], pieces: Iterator[bytes]) -> Download:
    size = sum(len(one.header) + one.size + _padding(one.size) for one in members) + len(_END)
    return Download(name=name, media_type="", size_bytes=size, pieces=pieces)


def _padding(size: int) -> int:
    return -size % _BLOCK


def _read_here(folder: Path, members: Sequence[_Member]) -> Iterator[bytes]:
    """The run removes no checkpoint that is being read."""
    with reading(str(folder), "send"):
        for one in members:
            yield one.header
            yield from pieces_of(folder, one.path, one.size)
            yield bytes(_padding(one.size))
    yield _END


def _read_stored(folder: Location, members: Sequence[_Member]) -> Iterator[bytes]:
    for one in members:
        yield one.header
        yield from stored_pieces(folder, one.path, one.size)
        yield bytes(_padding(one.size))
    yield _END
