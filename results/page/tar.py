"""A checkpoint as a tar archive, in pieces: no file is held in memory or written."""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.experiment.folder.contents import check_folder
from holdfast.experiment.records.view import ExperimentView
from holdfast.results.page.trial_files import (
    Download,
    NotThere,
    pieces_of,
    stored_pieces,
)
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.reading import reading
from holdfast.syncer.files.tree import MANIFEST_NAME, folder_inside, folder_within
from holdfast.syncer.stores.location import Location
from holdfast.trial.trial import CheckpointRecord, Trial

_BLOCK: Final = tarfile.BLOCKSIZE
_END: Final = bytes(2 * _BLOCK)
_MOST_FILES: Final = 100_000
_DEEPEST: Final = 100


class _Member(NamedTuple):
    path: str
    size: int
    header: bytes


def checkpoint_tar(experiment: ExperimentView, trial: Trial, dirname: str) -> Download:
    """A checkpoint from this machine, or else from storage.

    Raises NotThere, LeadsElsewhere, NotRegular, StorageError, OSError.
    """
    record = next((one for one in trial.checkpoints if one.dirname == dirname), None)
    if record is None:
        raise NotThere(f"trial {trial.trial_id} has no checkpoint {dirname[:100]!r} any more")
    name = f"{trial.trial_id}_{dirname}.tar"
    for root, is_storage in _roots(experiment, trial):
        with suppress(FileNotFoundError):
            return _here(root, f"{trial.spec.dirname}/{dirname}", name, is_storage=is_storage)
    return _stored(experiment, trial, record, name)


def _roots(experiment: ExperimentView, trial: Trial) -> Iterator[tuple[Path, bool]]:
    """The folders of the experiment that may have a checkpoint: its own, and its storage if that
    is a directory of this machine; with whether it is that storage."""
    layout, stored = experiment.layout, experiment.location.local_path
    if layout is not None:
        check_folder(layout.trial(trial.spec))
        yield layout.root, False
    if stored is not None and (layout is None or stored != str(layout.root)):
        yield Path(os.path.realpath(stored)), True


def is_here(folder: Path) -> bool:
    return os.path.isdir(folder) and not os.path.islink(folder)


def _here(root: Path, path: str, name: str, *, is_storage: bool) -> Download:
    """Raises FileNotFoundError if it is not there, or not whole."""
    folder = folder_inside(root, *path.split("/"))
    try:
        found = list(_files_in(folder, ""))
    finally:
        os.close(folder)
    if is_storage and not any(file == MANIFEST_NAME for file, _ in found):  # it is written last
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    own = [one for one in found if one[0] != MANIFEST_NAME]
    members = list(_members(own, path.rpartition("/")[2]))
    return _download(name, members, _read_here(root, path, members))


def _stored(
    experiment: ExperimentView, trial: Trial, record: CheckpointRecord, name: str
) -> Download:
    key, location = f"{trial.spec.dirname}/{record.dirname}", experiment.location
    is_remote = experiment.reads_storage and location.local_path is None
    entries = with_store(location, lambda store: store.list(f"{key}/")) if is_remote else []
    # An archive with `..` in it would write outside the folder in which it is unpacked.
    paths = [(entry.key.removeprefix(f"{key}/"), entry.size) for entry in entries]
    found = [one for one in paths if not {"", ".", ".."} & {*one[0].split("/")}]
    if not any(path == MANIFEST_NAME for path, _ in found):  # it is written last
        raise NotThere(_not_reached(experiment, trial, record))
    own = sorted(one for one in found if one[0] != MANIFEST_NAME)
    members = list(_members(own, record.dirname))
    return _download(name, members, _read_stored(location.child(key), members))


def _not_reached(experiment: ExperimentView, trial: Trial, record: CheckpointRecord) -> str:
    what = f"{record.dirname} of trial {trial.trial_id}"
    if experiment.storage and not experiment.reads_storage:
        uri = experiment.storage
        return f"{what} is not on this machine: open the page with the URI of its storage, {uri}"
    where = f": it is only on node {record.node}, where it was written" if record.node else ""
    return f"{what} is neither here nor in storage{where}"


def _files_in(folder: int, prefix: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    """The files below a folder; links, pipes and devices are refused when they are opened."""
    if depth > _DEEPEST:
        raise NotThere(f"{prefix[:100]!r}... is too deep: copy the folder instead")
    with os.scandir(folder) as entries:
        known = sorted(entries, key=lambda entry: entry.name)
    for entry in known:
        path = f"{prefix}{entry.name}"
        if not entry.is_dir(follow_symlinks=False):
            yield path, entry.stat(follow_symlinks=False).st_size
            continue
        below = folder_within(folder, entry.name)
        try:
            yield from _files_in(below, f"{path}/", depth + 1)
        finally:
            os.close(below)


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


def _read_here(root: Path, path: str, members: Sequence[_Member]) -> Iterator[bytes]:
    """The run removes no checkpoint that is being read."""
    with reading(str(root / path), "send"):
        for one in members:
            yield one.header
            yield from pieces_of(root, f"{path}/{one.path}", one.size)
            yield bytes(_padding(one.size))
    yield _END


def _read_stored(folder: Location, members: Sequence[_Member]) -> Iterator[bytes]:
    for one in members:
        yield one.header
        yield from stored_pieces(folder, one.path, one.size)
        yield bytes(_padding(one.size))
    yield _END
