"""Parquet files, read row group by row group on demand."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from holdfast.data.errors import DatasetGone, unknown_column
from holdfast.data.sources import window_of_files
from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageError
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.readable import listed

_GIVE_AGAIN = (
    "Put it back, or pass the dataset again: restore(path, datasets={...}) for a trainer, "
    "restore(path, trainable, param_space=...) for a Tuner"
)
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Rows `start` to `stop` of one row group of a file; it had `rows` when it was found."""

    file: int
    number: int
    rows: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files: paths on the filesystem of `place`, and the values in their folders' names.

    Each value is a pyarrow expression.
    """

    place: Location
    paths: tuple[str, ...]
    partitions: tuple[Any, ...]
    opened: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)
    half_used: dict[RowGroup, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def filesystem(self) -> Any:
        return self.place.arrow()[0]

    def fragment(self, file: int) -> Any:
        """The fragment of a file. That of the last file is cached, so that its footer is read
        once."""
        import pyarrow.dataset as ds

        found = self.opened.get(file)
        if found is None:
            found = ds.ParquetFileFormat().make_fragment(
                self.paths[file],
                filesystem=self.filesystem,
                partition_expression=self.partitions[file],
            )
            self.opened.clear()
            self.opened[file] = found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out credentials: a pickle may be stored, and its reader has its own."""
        _refuse_secrets(self.place)
        public = self.place.public
        given = self.place.base.filesystem
        return _files_again, (public if given is None else self.place.path, given, self.paths,
                              self.partitions)  # fmt: skip


def _files_again(
    place: str, filesystem: Any, paths: tuple[str, ...], partitions: tuple[Any, ...]
) -> Files:
    found = Location.resolve(place, filesystem, os.environ)
    return Files(place=found, paths=paths, partitions=partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource:
    """Row groups of files; only the ones being read are in memory.

    A pickle has the paths, the schema and the sizes.
    """

    files: Files
    groups: tuple[RowGroup, ...]
    schema: Any
    is_slow: bool = True

    @property
    def sizes(self) -> Sequence[int]:
        return [group.stop - group.start for group in self.groups]

    @property
    def window(self) -> int:
        return window_of_files([group.rows for group in self.groups])

    def read(self, block: int, start: int, stop: int) -> Any:
        """A row group whose rest is needed next stays in memory until then."""
        group, half_used = self.groups[block], self.files.half_used
        table = half_used.pop(group, None) or self._table(group)
        half_used.clear()
        if group.start + stop < group.stop:
            half_used[group] = table
        return table.slice(group.start + start, stop - start)

    def _table(self, group: RowGroup) -> Any:
        path = self.files.paths[group.file]
        with _told(path):
            fragment = self.files.fragment(group.file).subset(row_group_ids=[group.number])
            table = fragment.to_table(schema=self.schema)
        if table.num_rows != group.rows:
            raise DatasetGone(
                f"row group {group.number} of {path} has {table.num_rows} rows, but had "
                f"{group.rows} when the dataset was made. {_GIVE_AGAIN}"
            )
        return table

    def part(self, start: int, stop: int) -> ParquetSource:
        found, at = [], 0
        for group in self.groups:
            rows = group.stop - group.start
            first, last = max(start - at, 0), min(stop - at, rows)
            if first < last:
                bounds = {"start": group.start + first, "stop": group.start + last}
                found.append(replace(group, **bounds))
            at += rows
        return replace(self, groups=tuple(found))

    def check(self) -> None:
        """Raises DatasetGone, which names the missing files."""
        import pyarrow.fs as arrow_fs

        used = sorted({group.file for group in self.groups})
        paths = [self.files.paths[file] for file in used]
        with _told(paths[0] if len(paths) == 1 else "the files"):
            found = self.files.filesystem.get_file_info(paths)
        gone = [info.path for info in found if info.type == arrow_fs.FileType.NotFound]
        if gone:
            raise DatasetGone(f"{listed(gone, _SHOWN)}: missing. {_GIVE_AGAIN}")


def open_parquet(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    filesystem: Any,
    columns: Sequence[str] | None,
) -> ParquetSource:
    """Read the number of rows of each row group, and nothing else.

    Raises DatasetGone, InvalidConfig, InvalidLocation.
    """
    import pyarrow.dataset as ds

    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise InvalidConfig("read_parquet() needs at least one path")
    places = [Location.resolve(path, filesystem, os.environ) for path in given]
    names = [place.arrow()[1] for place in places]
    with _told(", ".join(place.public for place in places[:_SHOWN]), ""):
        found = ds.dataset(
            names[0] if len(names) == 1 else names,
            filesystem=places[0].arrow()[0],
            format="parquet",
            partitioning="hive",
        )
        fragments = list(found.get_fragments())
        groups = [
            RowGroup(file=file, number=group.id, rows=group.num_rows, start=0, stop=group.num_rows)
            for file, fragment in enumerate(fragments)
            for group in fragment.row_groups
            if group.num_rows
        ]
    files = Files(
        place=places[0],
        paths=tuple(fragment.path for fragment in fragments),
        partitions=tuple(fragment.partition_expression for fragment in fragments),
    )
    schema = _chosen(found.schema, columns)
    return ParquetSource(files=files, groups=tuple(groups), schema=schema)


def _chosen(schema: Any, columns: Sequence[str] | None) -> Any:
    import pyarrow as pa

    if columns is None:
        return schema
    for column in columns:
        if column not in schema.names:
            raise unknown_column(column, schema.names, f"read_parquet(columns={list(columns)!r})")
    return pa.schema([schema.field(column) for column in columns])


@contextmanager
def _told(what: str, advice: str = f". {_GIVE_AGAIN}") -> Iterator[None]:
    """Raise DatasetGone, naming the file, for errors of pyarrow or the storage."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise DatasetGone(f"{what}: missing ({error}){advice}") from error
    except (pa.ArrowException, OSError, StorageError) as error:
        if isinstance(error, DatasetGone):
            raise
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
