"""The files of a trial, here or in storage: what there is, their bytes, and a checkpoint as a tar
archive. No file is held in memory or written.

Names come from a URL or from a folder that another user may have written. A path is opened part by
part without following a link, and only a regular file is read (`TrialFolder.opened`).
"""

from __future__ import annotations

import errno
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import (
    STAGING,
    is_checkpoint,
    is_trial_record,
    of_rank_0,
)
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.experiment.records.view import ExperimentView
from holdfast.results.logs import folder_of, stored_folder
from holdfast.syncer.artifacts.settings import INDEX_NAME, LISTING_NAME
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.reading import reading
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.files.tree import MANIFEST_NAME, NotRegular, folder_inside, folder_within
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import CheckpointRecord, Trial

_MOST_LISTED: Final = 1_000
_MOST_VISITED: Final = 20_000
_DEEPEST: Final = 16
_LONGEST: Final = 4_096
# By the ending of a name: the type of an image, and how its file begins.
_PNG: Final = "image/png", re.compile(rb"\x89PNG\r\n\x1a\n")
_JPEG: Final = "image/jpeg", re.compile(rb"\xff\xd8\xff")
_GIF: Final = "image/gif", re.compile(rb"GIF8[79]a")
_WEBP: Final = "image/webp", re.compile(rb"RIFF....WEBP", re.S)
_IMAGES: Final = {".png": _PNG, ".jpg": _JPEG, ".jpeg": _JPEG, ".gif": _GIF, ".webp": _WEBP}
_MAGIC_BYTES: Final = 12


class NotThere(InvalidConfig):
    """The experiment has no such trial, file or checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file to send: `pieces` are read while they are sent.

    `name` is a name for the user's folder of downloads. `media_type` is that of an image that a
    browser may show, "" for everything else. `size_bytes` is None if it is not known.
    """

    name: str
    media_type: str
    size_bytes: int | None
    pieces: Iterator[bytes]


class Listed(NamedTuple):
    """A file by its path in the folder; `media_type` is that of an image, else ""."""

    path: str
    size_bytes: int
    media_type: str


class FoundFiles(NamedTuple):
    """The first files of a folder by name, and how many more there are at least."""

    files: Sequence[Listed]
    more: int


def artifacts_of(experiment: ExperimentView, trial: Trial, log_names: Sequence[str]) -> FoundFiles:
    """The user's files in the trial's folder. Raises LeadsElsewhere, StorageError, OSError."""
    folder, found, more = folder_of(experiment, trial, ""), list[Listed](), 0
    for visited, (path, size) in enumerate(_files_of(folder)):
        if visited >= _MOST_VISITED:
            more += 1
            break
        if not _is_artifact(path, log_names):
            continue
        if len(found) < _MOST_LISTED:
            found.append(Listed(path, size, _image_type(folder, path)))
        else:
            more += 1
    return FoundFiles(sorted(found), more)


def _files_of(folder: TrialFolder) -> Iterator[tuple[str, int]]:
    """The files below a trial's folder, here without those of checkpoints."""
    if (here := folder.local) is None:
        entries = with_store(folder.location, lambda store: store.list())
        return ((entry.key, entry.size) for entry in entries)
    return _walk(lambda: folder_inside(here.parent, here.name), "", 0)


def _is_artifact(path: str, log_names: Sequence[str]) -> bool:
    top, _, below = path.partition("/")
    if not _is_plain(path) or top == STAGING or is_leftover(top):
        return False
    if below:
        return not is_checkpoint(top)
    of_first = of_rank_0(top)
    return not (
        is_trial_record(of_first) or of_first in log_names or top in (INDEX_NAME, LISTING_NAME)
    )


def _walk(open_folder: Callable[[], int], prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    """Regular files below a folder; no link is followed."""
    try:
        folder = open_folder()
    except (FileNotFoundError, PermissionError, NotRegular):
        return
    with _entered(folder):
        for entry in _in_order(folder):
            path = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEEPEST and not (not prefix and is_checkpoint(entry.name)):
                    below = partial(folder_within, folder, entry.name)
                    yield from _walk(below, f"{path}/", depth + 1)
            elif entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    yield path, entry.stat(follow_symlinks=False).st_size


def _in_order(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def sizes_in(folder: TrialFolder) -> Mapping[str, int | None]:
    """The files in a trial's folder by name, with their sizes, None where only a request for each
    tells; empty if there is no such folder."""
    if (here := folder.local) is None:
        return dict.fromkeys(folder.names())
    found = dict[str, int | None]()
    with suppress(FileNotFoundError), _entered(folder_inside(here.parent, here.name)) as opened:
        for entry in os.scandir(opened):
            with suppress(FileNotFoundError):
                found[entry.name] = entry.stat(follow_symlinks=False).st_size
    return found


@contextmanager
def _entered(folder: int) -> Iterator[int]:
    """An open folder, which is closed at the end."""
    try:
        yield folder
    finally:
        os.close(folder)


def _is_plain(path: str) -> bool:
    """True if a path has only names, and leads below the folder that it is in."""
    parts = path.split("/")
    return (
        0 < len(path) <= _LONGEST
        and path.isprintable()
        and all(part not in ("", ".", "..") for part in parts)
        and len(parts) <= _DEEPEST + 1
    )


def _named(path: str) -> str:
    kind, _ = _IMAGES.get(os.path.splitext(path)[1].lower(), ("", None))
    return kind


def _image(path: str, first: bytes) -> str:
    """The type of an image, by its name and its first bytes; "" for another file."""
    kind, begins = _IMAGES.get(os.path.splitext(path)[1].lower(), ("", None))
    return kind if begins is not None and begins.match(first) else ""


def _image_type(folder: TrialFolder, path: str) -> str:
    """In storage the name alone tells an image, without a request for each."""
    if folder.local is None or not _named(path):
        return _named(path)
    try:
        return _image(path, (folder.piece(path, 0, _MAGIC_BYTES) or (0, b""))[1])
    except OSError:
        return ""


def artifact(experiment: ExperimentView, trial: Trial, path: str) -> Download:
    """A file in the trial's folder.

    Raises NotThere, LeadsElsewhere, NotRegular, StorageError, OSError.
    """
    name = path.rpartition("/")[2]
    if not _is_plain(path) or name == MANIFEST_NAME:
        raise NotThere(f"{path[:200]!r} is not the path of a file in the folder of the trial")
    folder = folder_of(experiment, trial, path)
    found = folder.piece(path, 0, _MAGIC_BYTES)
    if found is None:
        raise NotThere(f"trial {trial.trial_id} has no file {path!r}")
    size, first = found
    media_type, pieces = _image(path, first), folder.pieces(path, size)
    return Download(name=name, media_type=media_type, size_bytes=size, pieces=pieces)


# -- a checkpoint as a tar archive ----------------------------------------------------------------

_BLOCK: Final = tarfile.BLOCKSIZE
_END: Final = bytes(2 * _BLOCK)
_MOST_FILES: Final = 100_000
_DEEPEST_PACKED: Final = 100


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
    for folder, is_storage in _folders(experiment, trial):
        with suppress(FileNotFoundError):
            return _packed(folder, dirname, f"{trial.trial_id}_{dirname}.tar", is_storage)
    raise NotThere(_not_reached(experiment, trial, record))


def _folders(experiment: ExperimentView, trial: Trial) -> Iterator[tuple[TrialFolder, bool]]:
    """The folders of the trial that may have a checkpoint: in the experiment's tree, and in its
    storage; with whether it is that storage."""
    layout, location = experiment.layout, experiment.location
    if layout is not None:
        yield TrialFolder.of(trial.spec, location, layout), False
    if experiment.reads_storage:
        yield stored_folder(experiment, trial), True


def is_here(folder: Path) -> bool:
    return os.path.isdir(folder) and not os.path.islink(folder)


def _packed(folder: TrialFolder, dirname: str, name: str, is_storage: bool) -> Download:
    """Raises FileNotFoundError if the checkpoint is not there, or not whole."""
    here = folder.local
    if here is None:
        entries = with_store(folder.location.child(dirname), lambda store: store.list())
        # An archive with `..` in it would write outside the folder in which it is unpacked.
        listed = [(entry.key, entry.size) for entry in entries]
        found = sorted(one for one in listed if not {"", ".", ".."} & {*one[0].split("/")})
    else:
        with _entered(folder_inside(here.parent, here.name, dirname)) as opened:
            found = list(_files_in(opened, ""))
    if is_storage and not any(path == MANIFEST_NAME for path, _ in found):  # it is written last
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), dirname)
    members = list(_members([one for one in found if one[0] != MANIFEST_NAME], dirname))
    pieces = _archive(members, lambda one: folder.pieces(f"{dirname}/{one.path}", one.size))
    size = sum(len(one.header) + one.size + _padding(one.size) for one in members) + len(_END)
    held = pieces if here is None else _held(here / dirname, pieces)
    return Download(name=name, media_type="", size_bytes=size, pieces=held)


def _not_reached(experiment: ExperimentView, trial: Trial, record: CheckpointRecord) -> str:
    what = f"{record.dirname} of trial {trial.trial_id}"
    if experiment.storage and not experiment.reads_storage:
        uri = experiment.storage
        return f"{what} is not on this machine: open the page with the URI of its storage, {uri}"
    where = f": it is only on node {record.node}, where it was written" if record.node else ""
    return f"{what} is neither here nor in storage{where}"


def _files_in(folder: int, prefix: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    """The files below a folder; links, pipes and devices are refused when they are opened."""
    if depth > _DEEPEST_PACKED:
        raise NotThere(f"{prefix[:100]!r}... is too deep: copy the folder instead")
    for entry in _in_order(folder):
        path = f"{prefix}{entry.name}"
        if not entry.is_dir(follow_symlinks=False):
            yield path, entry.stat(follow_symlinks=False).st_size
            continue
        with _entered(folder_within(folder, entry.name)) as below:
            yield from _files_in(below, f"{path}/", depth + 1)


def _members(files: Sequence[tuple[str, int]], dirname: str) -> Iterator[_Member]:
    if len(files) > _MOST_FILES:
        raise NotThere(f"{dirname} has {len(files):,} files: copy its folder instead")
    for path, size in files:
        info = tarfile.TarInfo(f"{dirname}/{path}")
        info.size, info.mode = size, 0o644
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        yield _Member(path, size, header)


def _padding(size: int) -> int:
    return -size % _BLOCK


def _held(folder: Path, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The run removes no checkpoint that is being read."""
    with reading(str(folder), "send"):
        yield from pieces


def _archive(
    members: Sequence[_Member], content: Callable[[_Member], Iterator[bytes]]
) -> Iterator[bytes]:
    for one in members:
        yield one.header
        yield from content(one)
        yield bytes(_padding(one.size))
    yield _END
