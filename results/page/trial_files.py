"""The files of a trial, here or in storage: what there is, their bytes, and a checkpoint as a tar
archive. No file is held in memory or written.

Names come from a URL or from a folder that another user may have written. A path is opened part by
part without following a link, and only a regular file is read (`open_inside`).
"""

from __future__ import annotations

import errno
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.contents import check_folder
from holdfast.experiment.folder.layout import (
    STAGING,
    is_checkpoint,
    is_trial_record,
    of_rank_0,
)
from holdfast.experiment.folder.trial_folder import read_from
from holdfast.experiment.records.view import ExperimentView
from holdfast.results.logs import layout_of
from holdfast.syncer.artifacts.settings import INDEX_NAME, LISTING_NAME
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.checkpoint.reading import reading
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.files.tree import (
    MANIFEST_NAME,
    NotRegular,
    folder_inside,
    folder_within,
    open_inside,
)
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import CheckpointRecord, Trial

PIECE: Final = 1 << 20
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
    root = root_of(experiment, trial, "")
    if root is None:
        return _stored_artifacts(experiment.location, trial, log_names)
    dirname, visited, found, more = trial.spec.dirname, 0, list[Listed](), 0
    for path, size in _walk(lambda: folder_inside(root, dirname), "", 0):
        visited += 1
        if visited > _MOST_VISITED:
            more += 1
            break
        if not _is_artifact(path, log_names):
            continue
        if len(found) < _MOST_LISTED:
            found.append(Listed(path, size, _image_type(root, dirname, path)))
        else:
            more += 1
    return FoundFiles(sorted(found), more)


def _stored_artifacts(location: Location, trial: Trial, log_names: Sequence[str]) -> FoundFiles:
    prefix = f"{trial.spec.dirname}/"
    entries = with_store(location, lambda store: store.list(prefix))
    paths = [(entry.key.removeprefix(prefix), entry.size) for entry in entries]
    own = sorted(one for one in paths if _is_artifact(one[0], log_names))
    # Without a request for each, the name alone tells an image.
    found = [Listed(path, size, _named(path)) for path, size in own[:_MOST_LISTED]]
    return FoundFiles(found, len(own) - len(found))


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


def root_of(experiment: ExperimentView, trial: Trial, name: str) -> Path | None:
    """The folder of the experiment that has the newest content of this file of the trial; None if
    a storage has it that is not a directory of this machine. Raises LeadsElsewhere."""
    layout = layout_of(experiment, trial, name)
    if layout is not None:
        check_folder(layout.trial(trial.spec))
        return layout.root
    stored = experiment.location.local_path
    return None if stored is None else Path(os.path.realpath(stored))


def _walk(open_folder: Callable[[], int], prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    """Regular files below a folder; no link is followed."""
    try:
        folder = open_folder()
    except (FileNotFoundError, PermissionError, NotRegular):
        return
    try:
        with os.scandir(folder) as entries:
            known = sorted(entries, key=lambda entry: entry.name)
        for entry in known:
            path = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEEPEST and not (not prefix and is_checkpoint(entry.name)):
                    below = partial(folder_within, folder, entry.name)
                    yield from _walk(below, f"{path}/", depth + 1)
            elif entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    yield path, entry.stat(follow_symlinks=False).st_size
    finally:
        os.close(folder)


def sizes_in(root: Path, dirname: str) -> dict[str, int]:
    """The size of each file in a trial's folder by name; empty if there is no such folder."""
    try:
        folder = folder_inside(root, dirname)
    except FileNotFoundError:
        return {}
    found = dict[str, int]()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_size
    finally:
        os.close(folder)
    return found


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


def _image_type(root: Path, dirname: str, path: str) -> str:
    if not _named(path):
        return ""
    try:
        with open_inside(root, f"{dirname}/{path}") as file:
            return _image(path, file.read(_MAGIC_BYTES))
    except OSError:
        return ""


def artifact(experiment: ExperimentView, trial: Trial, path: str) -> Download:
    """A file in the trial's folder.

    Raises NotThere, LeadsElsewhere, NotRegular, StorageError, OSError.
    """
    if not _is_plain(path) or path.split("/")[-1] == MANIFEST_NAME:
        raise NotThere(f"{path[:200]!r} is not the path of a file in the folder of the trial")
    root, dirname, name = root_of(experiment, trial, path), trial.spec.dirname, path.split("/")[-1]
    if root is None:
        return _stored_file(experiment.location.child(dirname), path, name)
    inside = f"{dirname}/{path}"
    try:
        with open_inside(root, inside) as file:
            size, first = os.fstat(file.fileno()).st_size, file.read(_MAGIC_BYTES)
    except FileNotFoundError:
        raise NotThere(f"trial {trial.trial_id} has no file {path!r}") from None
    return Download(
        name=name,
        media_type=_image(path, first),
        size_bytes=size,
        pieces=pieces_of(root, inside, size),
    )


def pieces_of(root: Path, path: str, size: int) -> Iterator[bytes]:
    """`size` bytes of a file below `root`, which is opened when they are read. Raises OSError."""
    with open_inside(root, path) as file:
        yield from _sent(lambda at, most: file.read(most), size)


def _sent(read: Callable[[int, int], bytes], size: int, most: int = PIECE) -> Iterator[bytes]:
    """`size` bytes of a file, of which `read` returns some from an offset, at most `most`.

    Raises OSError if it is shorter now: it may have been cut since its size was read.
    """
    at = 0
    while at < size:
        piece = read(at, min(most, size - at))
        if not piece:
            raise OSError(errno.ESTALE, "the file has become shorter while it was sent")
        at += len(piece)
        yield piece


def _stored_file(folder: Location, path: str, name: str) -> Download:
    found = read_from(folder, path, 0, _MAGIC_BYTES)
    if found is None:
        raise NotThere(f"{folder.public} has no file {path!r}")
    size, first = found
    pieces = _stored_pieces(folder, path, size)
    return Download(name=name, media_type=_image(path, first), size_bytes=size, pieces=pieces)


def _stored_pieces(folder: Location, path: str, size: int) -> Iterator[bytes]:
    """`size` bytes of a file in storage. Raises StorageError, OSError."""

    def read(at: int, most: int) -> bytes:
        found = read_from(folder, path, at, most)
        return b"" if found is None else found[1]

    return _sent(read, size, 4 * PIECE)


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
    pieces = _archive(members, lambda one: pieces_of(root, f"{path}/{one.path}", one.size))
    return _download(name, members, _held(root / path, pieces))


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
    folder = location.child(key)
    pieces = _archive(members, lambda one: _stored_pieces(folder, one.path, one.size))
    return _download(name, members, pieces)


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
