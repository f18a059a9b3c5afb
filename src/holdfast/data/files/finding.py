"""Files of datasets: finding them, reading them in blocks, and the error if one is gone."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Any, Generic, Self, TypeVar
from urllib.parse import unquote

from holdfast.data.errors import DatasetGone
from holdfast.data.order import parts_of
from holdfast.data.sources import window_of_files
from holdfast.dataclass import dataclass
from holdfast.names import listed
from holdfast.syncer.errors import StorageError
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import InvalidConfig

GIVE_AGAIN = (
    "Put it back, or pass the dataset again: restore(path, datasets={...}) for a trainer, "
    "restore(path, trainable, param_space=...) for a Tuner"
)
SHOWN = 3
PATH = "path"  # the column of include_paths

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rows `start` to `stop` of a part of a file that had `rows` when it was found."""

    file: int
    rows: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files: paths on the filesystem of `place`, and the values in their folders' names.

    Each value is a pyarrow expression for Parquet, and a dict for other formats. `opened` has what
    a source keeps of the last file, `half_used` the last block if its rest is needed.
    """

    place: Location
    paths: tuple[str, ...]
    partitions: tuple[Any, ...]
    opened: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)
    half_used: dict[Block, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def filesystem(self) -> Any:
        return self.place.arrow()[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out credentials: a pickle may be stored, and its reader has its own."""
        _refuse_secrets(self.place)
        public = self.place.public
        given = self.place.base.filesystem
        return files_again, (public if given is None else self.place.path, given, self.paths,
                             self.partitions)  # fmt: skip


def files_again(
    place: str, filesystem: Any, paths: tuple[str, ...], partitions: tuple[Any, ...]
) -> Files:
    found = Location.resolve(place, filesystem, os.environ)
    return Files(place=found, paths=paths, partitions=partitions)


B = TypeVar("B", bound=Block)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource(ABC, Generic[B]):
    """Blocks of files; only the ones being read are in memory.

    A pickle has the paths, the schema and the sizes.
    """

    files: Files
    groups: tuple[B, ...]
    schema: Any
    is_slow: bool = True

    @abstractmethod
    def table(self, block: B) -> Any:
        """All rows of the part of the file. Raises DatasetGone."""

    @property
    def sizes(self) -> Sequence[int]:
        return [group.stop - group.start for group in self.groups]

    @property
    def window(self) -> int:
        return window_of_files([group.rows for group in self.groups])

    def read(self, block: int, start: int, stop: int) -> Any:
        """A block whose rest is needed next stays in memory until then."""
        group, half_used = self.groups[block], self.files.half_used
        table = half_used.pop(group, None)
        if table is None:
            table = self._checked(group)
        half_used.clear()
        if group.start + stop < group.stop:
            half_used[group] = table
        return table.slice(group.start + start, stop - start)

    def _checked(self, group: B) -> Any:
        path = self.files.paths[group.file]
        with told(path):
            table = self.table(group)
        if table.num_rows != group.rows:
            raise DatasetGone(
                f"{self.name_of(group)} has {table.num_rows} rows, but had {group.rows} when the "
                f"dataset was made. {GIVE_AGAIN}"
            )
        return table

    def name_of(self, group: B) -> str:
        """The part of the file, for a message."""
        return self.files.paths[group.file]

    def part(self, start: int, stop: int) -> Self:
        found = []
        for number, first, last in parts_of(self.sizes, start, stop):
            group = self.groups[number]
            found.append(replace(group, start=group.start + first, stop=group.start + last))
        return replace(self, groups=tuple(found))

    def check(self) -> None:
        """Raises DatasetGone, which names the missing files."""
        import pyarrow.fs as arrow_fs

        used = sorted({group.file for group in self.groups})
        paths = [self.files.paths[file] for file in used]
        with told(paths[0] if len(paths) == 1 else "the files"):
            found = self.files.filesystem.get_file_info(paths)
        gone = [info.path for info in found if info.type == arrow_fs.FileType.NotFound]
        if gone:
            raise DatasetGone(f"{listed(gone, SHOWN)}: missing. {GIVE_AGAIN}")


# -- finding files --------------------------------------------------------------------------------


def found_files(
    paths: Paths,
    *,
    caller: str,
    filesystem: Any,
    extensions: Sequence[str] | None,
    ignore_missing: bool = False,
) -> Files:
    """The files at these paths, in their order; those of a directory or a pattern by name.

    `extensions` chooses among the files of directories. Folders named `key=value` give values.
    Names that begin with "." or "_" are left out, as those that other writers have not finished.

    Raises DatasetGone for a missing path, InvalidConfig if no file is found.
    """
    places = located(paths, filesystem, caller)
    fits = _fits(extensions)
    found: list[tuple[str, str]] = []
    for place in places:
        arrow_filesystem, name = place.arrow()
        with told(place.public, ""):
            found += _below(arrow_filesystem, name, place.public, fits, ignore_missing)
    if not found:
        kinds = f" that end with {listed(list(extensions), 10)}" if extensions else ""
        shown = ", ".join(place.public for place in places[:SHOWN])
        raise InvalidConfig(f"{caller}() found no files{kinds} in {shown}")
    return Files(
        place=places[0],
        paths=tuple(path for path, _ in found),
        partitions=_typed([_values(path, root) for path, root in found]),
    )


def located(paths: Paths, filesystem: Any, caller: str) -> list[Location]:
    """Raises InvalidConfig without a path, InvalidLocation for an unknown URI."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise InvalidConfig(f"{caller}() needs at least one path")
    return [Location.resolve(path, filesystem, os.environ) for path in given]


def is_pattern(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def _below(
    filesystem: Any, name: str, public: str, fits: Callable[[str], bool], ignore_missing: bool
) -> list[tuple[str, str]]:
    """(path, the directory that it was found in) for each file."""
    import pyarrow.fs as arrow_fs

    info = filesystem.get_file_info(name)
    if info.type == arrow_fs.FileType.File:
        return [(name, name.rpartition("/")[0])]
    if info.type == arrow_fs.FileType.Directory:
        return [(path, name) for path in listed_below(filesystem, name) if fits(path)]
    if is_pattern(name):
        return [(path, root) for path, root in matching(filesystem, name) if fits(path)]
    if ignore_missing:
        return []
    raise FileNotFoundError(public)


def matching(filesystem: Any, pattern: str) -> list[tuple[str, str]]:
    """The files that fit a pattern of a shell; `**` fits any number of folders."""
    parts = pattern.split("/")
    fixed = next(at for at, part in enumerate(parts) if is_pattern(part))
    root = "/".join(parts[:fixed])
    return [
        (path, root)
        for path in listed_below(filesystem, root)
        if _matches(path.split("/")[fixed:], parts[fixed:])
    ]


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        return any(_matches(names[at:], parts[1:]) for at in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])


def listed_below(filesystem: Any, root: str) -> list[str]:
    """The files below a directory by name, without those that begin with "." or "_"."""
    import pyarrow.fs as arrow_fs

    selector = arrow_fs.FileSelector(root, recursive=True, allow_not_found=True)
    return sorted(
        info.path
        for info in filesystem.get_file_info(selector)
        if info.type == arrow_fs.FileType.File
        and not any(part.startswith((".", "_")) for part in _inner(info.path, root).split("/"))
    )


def _inner(path: str, root: str) -> str:
    return path[len(root) :].lstrip("/")


def _fits(extensions: Sequence[str] | None) -> Callable[[str], bool]:
    ends = tuple(f".{one.lower().lstrip('.')}" for one in extensions or ())
    return lambda path: not ends or path.lower().endswith(ends)


def _values(path: str, root: str) -> dict[str, str]:
    folders = _inner(path, root).split("/")[:-1]
    pairs = [folder.partition("=") for folder in folders if "=" in folder]
    return {unquote(key): unquote(value) for key, _, value in pairs if key}


def _typed(found: list[dict[str, str]]) -> tuple[dict[str, Any], ...]:
    """Values that are whole numbers in all files become numbers, as in Parquet datasets."""
    numbers = {
        key
        for key in {key for values in found for key in values}
        if all(re.fullmatch(r"-?\d{1,9}", values.get(key, "0")) for values in found)
    }
    return tuple(
        {key: int(value) if key in numbers else value for key, value in values.items()}
        for values in found
    )


@contextmanager
def told(what: str, advice: str = f". {GIVE_AGAIN}") -> Iterator[None]:
    """Raise DatasetGone, naming the file, for errors of pyarrow or the storage."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        if isinstance(error, DatasetGone):
            raise
        raise DatasetGone(f"{what}: missing ({error}){advice}") from error
    except (pa.ArrowException, OSError, StorageError) as error:
        raise DatasetGone(f"{what} cannot be read: {error}{advice}") from error


def _refuse_secrets(place: Location) -> None:
    """Raises InvalidConfig for a filesystem whose pickle would contain a key."""
    import pyarrow.fs as arrow_fs

    given = place.base.filesystem
    if not isinstance(given, getattr(arrow_fs, "S3FileSystem", ())):
        return
    fields: Any = given.__reduce__()[1][0]
    if any(fields.get(name) for name in ("access_key", "secret_key", "session_token")):
        raise InvalidConfig(
            "a dataset is pickled for the workers and for a restore, and a pickle must not "
            "contain credentials: leave them out of the S3FileSystem and set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
        )
