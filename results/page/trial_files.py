"""The files of a trial, here or in storage: what there is, and their bytes.

Names come from a URL or from a folder that another user may have written. A path is opened part by
part without following a link, and only a regular file is read (`open_inside`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from holdfast.trial.trial import Trial

PIECE: Final = 1 << 20
_MOST_LISTED: Final = 1_000
_MOST_VISITED: Final = 20_000
_DEEPEST: Final = 16
_LONGEST: Final = 4_096
_IMAGES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
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
    """Whether a path has only names, below the folder that it is in."""
    parts = path.split("/")
    return (
        0 < len(path) <= _LONGEST
        and path.isprintable()
        and all(part not in ("", ".", "..") for part in parts)
        and len(parts) <= _DEEPEST + 1
    )


def _named(path: str) -> str:
    return _IMAGES.get(os.path.splitext(path)[1].lower(), "")


def _image_type(root: Path, dirname: str, path: str) -> str:
    if not _named(path):
        return ""
    try:
        with open_inside(root, f"{dirname}/{path}") as file:
            return _image(path, file.read(_MAGIC_BYTES))
    except OSError:
        return ""


def _type_of(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


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


def _image(path: str, first: bytes) -> str:
    """The type of an image, by its name and its first bytes; "" for another file."""
    named = _named(path)
    return named if named and _type_of(first) == named else ""


def pieces_of(root: Path, path: str, size: int) -> Iterator[bytes]:
    """`size` bytes of a file below `root`, which is opened when they are read. Raises OSError."""
    with open_inside(root, path) as file:
        yield from exactly(file, size)


def exactly(file: Any, size: int) -> Iterator[bytes]:
    """`size` bytes of a file, which may have been cut or have grown since its size was read.

    Raises OSError if it is shorter now.
    """
    left = size
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise OSError(errno.ESTALE, "the file has become shorter while it was sent")
        left -= len(piece)
        yield piece


def _stored_file(folder: Location, path: str, name: str) -> Download:
    found = read_from(folder, path, 0, PIECE)
    if found is None:
        raise NotThere(f"{folder.public} has no file {path!r}")
    size, first = found
    pieces = stored_pieces(folder, path, size, first)
    return Download(name=name, media_type=_image(path, first), size_bytes=size, pieces=pieces)


def stored_pieces(folder: Location, path: str, size: int, first: bytes = b"") -> Iterator[bytes]:
    """`size` bytes of a file in storage. Raises StorageError, OSError."""
    if first:
        yield first
    at = len(first)
    while at < size:
        found = read_from(folder, path, at, min(4 * PIECE, size - at))
        if found is None or not found[1]:
            raise OSError(errno.ESTALE, "the file has become shorter while it was sent")
        at += len(found[1])
        yield found[1]
