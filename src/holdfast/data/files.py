"""Files of datasets: finding them, reading them in blocks, and the error if one is gone."""

from __future__ import annotations

import copy
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self
from urllib.parse import unquote

from holdfast.data.order import parts_of
from holdfast.data.rows import DatasetGone, unknown_column
from holdfast.dataclass import dataclass
from holdfast.names import listed
from holdfast.syncer.errors import StorageError
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import InvalidConfig

GIVE_AGAIN = (
    "Put it back, or pass the dataset again: restore(path, datasets={...}) for a trainer, "
    "restore(path, trainable, param_space=...) for a Tuner"
)
PATH = "path"  # the column of include_paths
BYTES = "bytes"  # the column of read_binary_files
_SHOWN = 3
# A shuffle of files uses windows of at least this many rows.
_LEAST_WINDOW = 1 << 16

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rows `start` to `stop` of a file, or of its row group `number`, which had `rows` when it was
    found."""

    file: int
    rows: int
    start: int
    stop: int
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files: paths on the filesystem of `place`, and the values in their folders' names.

    `opened` has what a source keeps of the last file, `half_used` the last block if its rest is
    needed.
    """

    place: Location
    paths: tuple[str, ...]
    values: tuple[dict[str, Any], ...]
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
                             self.values)  # fmt: skip


def files_again(
    place: str, filesystem: Any, paths: tuple[str, ...], values: tuple[dict[str, Any], ...]
) -> Files:
    found = Location.resolve(place, filesystem, os.environ)
    return Files(place=found, paths=paths, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource(ABC):
    """Blocks of files; only the ones being read are in memory.

    A pickle has the paths, the schema and the sizes.
    """

    files: Files
    groups: tuple[Block, ...]
    schema: Any
    is_slow: bool = True

    @abstractmethod
    def table(self, block: Block) -> Any:
        """All rows of the block's file or row group. Raises DatasetGone."""

    @property
    def sizes(self) -> Sequence[int]:
        return [group.stop - group.start for group in self.groups]

    @property
    def window(self) -> int:
        """At least one of the blocks, which is in memory anyway."""
        return max(_LEAST_WINDOW, *(group.rows for group in self.groups), 1)

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

    def _checked(self, group: Block) -> Any:
        path = self.files.paths[group.file]
        with told(path):
            table = self._completed(self.table(group), group.file)
        if table.num_rows != group.rows:
            name = path if group.number is None else f"row group {group.number} of {path}"
            raise DatasetGone(
                f"{name} has {table.num_rows} rows, but had {group.rows} when the dataset was "
                f"made. {GIVE_AGAIN}"
            )
        return table

    def _completed(self, table: Any, file: int) -> Any:
        """The columns of the schema: those that the file does not have are the values of its
        folders, its path, or empty."""
        import pyarrow as pa

        constants = {PATH: self.files.paths[file], **self.files.values[file]}
        columns = []
        for column in self.schema:
            if column.name in table.column_names:
                columns.append(table.column(column.name).cast(column.type))
            else:
                value = pa.scalar(constants.get(column.name), column.type)
                columns.append(pa.repeat(value, table.num_rows))
        return pa.table(columns, schema=self.schema)

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
            raise DatasetGone(f"{listed(gone, _SHOWN)}: missing. {GIVE_AGAIN}")


# -- Parquet --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource(FileSource):
    """Row groups of files."""

    def table(self, block: Block) -> Any:
        """The fragment of the last file is kept, so that its footer is read once."""
        opened = self.files.opened
        if block.file not in opened:
            opened.clear()
            opened[block.file] = _fragment(self.files, block.file)
        fragment = opened[block.file]
        own = [column for column in self.schema if column.name in fragment.physical_schema.names]
        return fragment.subset(row_group_ids=[block.number]).to_table(schema=_schema(own))


def open_parquet(files: Files, columns: Sequence[str] | None) -> ParquetSource:
    """Read the number of rows of each row group, and nothing else.

    Raises DatasetGone, InvalidConfig for an unknown column.
    """
    groups: list[Block] = []
    first: Any = None
    for file, path in enumerate(files.paths):
        with told(path, ""):
            fragment = _fragment(files, file)
            first = first or fragment.physical_schema
            groups += [
                Block(file=file, rows=one.num_rows, start=0, stop=one.num_rows, number=one.id)
                for one in fragment.row_groups
                if one.num_rows
            ]
    schema = _with_values({one.name: one for one in first}, files.values)
    names = schema.names if columns is None else list(columns)
    for name in names:
        if name not in schema.names:
            raise unknown_column(name, schema.names, f"read_parquet(columns={names!r})")
    chosen = _schema([schema.field(name) for name in names])
    return ParquetSource(files=files, groups=tuple(groups), schema=chosen)


def _fragment(files: Files, file: int) -> Any:
    import pyarrow.dataset as ds

    return ds.ParquetFileFormat().make_fragment(files.paths[file], filesystem=files.filesystem)


def _schema(fields: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.schema(fields)


def _with_values(fields: dict[str, Any], values: Sequence[dict[str, Any]]) -> Any:
    """A schema of these fields, and of the values in the names of folders."""
    import pyarrow as pa

    for found in values:
        fields |= {name: pa.field(name, pa.scalar(value).type) for name, value in found.items()}
    return _schema(list(fields.values()))


# -- files that are read as a whole ---------------------------------------------------------------


class Form(ABC):
    """Makes rows of the content of a file. Picklable."""

    caller: ClassVar[str]

    @abstractmethod
    def parse(self, data: bytes, schema: Any) -> Any:
        """A table of these bytes; with a `schema`, the columns that it names have its types.

        Raises ArrowInvalid, ValueError.
        """

    def wider(self, column: str, one: Any, other: Any) -> Any:
        """A type for values that were read as `one` and as `other`. Raises ValueError."""
        raise ValueError(f"the column {column!r} has values of the types {one} and {other}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Csv(Form):
    """CSV, parsed by pyarrow with its options; None for its defaults."""

    read_options: Any = None
    parse_options: Any = None
    convert_options: Any = None
    caller = "read_csv"

    def parse(self, data: bytes, schema: Any) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        read = copy.deepcopy(self.read_options) or csv.ReadOptions()
        # One block: pyarrow takes the types from its first one.
        read.block_size = max(len(data), 1 << 10)
        convert = copy.deepcopy(self.convert_options) or csv.ConvertOptions()
        if schema is not None:
            convert.column_types = {one.name: one.type for one in schema}
        return csv.read_csv(
            pa.BufferReader(data),
            read_options=read,
            parse_options=self.parse_options,
            convert_options=convert,
        )

    def wider(self, column: str, one: Any, other: Any) -> Any:
        """The text, as the file has it."""
        import pyarrow as pa

        return pa.string()


@dataclass(frozen=True, slots=True, kw_only=True)
class Json(Form):
    """JSON: an object for each line, objects one after the other, or one list of objects."""

    read_options: Any = None
    parse_options: Any = None
    caller = "read_json"

    def parse(self, data: bytes, schema: Any) -> Any:
        import pyarrow as pa
        from pyarrow import json as arrow_json

        if data.lstrip()[:1] == b"[":
            rows = json.loads(data)
            if not all(isinstance(row, dict) for row in rows):
                raise ValueError("the list has items that are not objects")
            known = schema and [one for one in schema if any(one.name in row for row in rows)]
            return pa.Table.from_pylist(rows, schema=pa.schema(known) if known else None)
        options = copy.deepcopy(self.parse_options) or arrow_json.ParseOptions()
        options.newlines_in_values = True
        if schema is not None:
            options.explicit_schema = schema
            options.unexpected_field_behavior = "ignore"
        read = copy.deepcopy(self.read_options) or arrow_json.ReadOptions()
        read.block_size = max(len(data), 1 << 10)
        return arrow_json.read_json(
            pa.BufferReader(data), read_options=read, parse_options=options
        )

    def wider(self, column: str, one: Any, other: Any) -> Any:
        """Texts that look like times are texts if others do not."""
        import pyarrow as pa

        if all(pa.types.is_string(kind) or pa.types.is_temporal(kind) for kind in (one, other)):
            return pa.string()
        return Form.wider(self, column, one, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Form):
    """Each line is a text in the column "text"."""

    encoding: str
    drop_empty_lines: bool
    caller = "read_text"

    def parse(self, data: bytes, schema: Any) -> Any:
        import pyarrow as pa

        lines = data.decode(self.encoding).removesuffix("\n").split("\n")
        found = [line.removesuffix("\r") for line in lines]
        if self.drop_empty_lines:
            found = [line for line in found if line.strip()]
        return pa.table({"text": pa.array(found, pa.string())})


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedSource(FileSource):
    """Files that are read and parsed as a whole when their rows are needed."""

    form: Form

    def table(self, block: Block) -> Any:
        data = _content(self.files, block.file)
        try:
            return self.form.parse(data, self.schema)
        except ValueError as error:
            raise OSError(str(error)) from error


def open_parsed(files: Files, form: Form, *, include_paths: bool) -> ParsedSource:
    """Read all files once, to know the rows and the type of each column.

    Raises DatasetGone, InvalidConfig for a file that cannot be parsed.
    """
    import pyarrow as pa

    groups: list[Block] = []
    fields: dict[str, Any] = {}
    for file, path in enumerate(files.paths):
        with told(path, ""):
            data = _content(files, file)
        try:
            # Arrow finds no columns in nothing.
            table = form.parse(data, None) if data else pa.table({})
            for one in table.schema:
                known = fields.get(one.name, one)
                fields[one.name] = pa.field(one.name, _wider(form, known, one))
        except (pa.ArrowInvalid, ValueError) as error:
            raise InvalidConfig(f"{form.caller}() cannot parse {path}: {error}") from error
        if rows := table.num_rows:
            groups.append(Block(file=file, rows=rows, start=0, stop=rows))
    paths = [{PATH: ""}] if include_paths else []
    schema = _with_values(fields, [*files.values, *paths])
    return ParsedSource(files=files, groups=tuple(groups), schema=schema, form=form)


def _content(files: Files, file: int) -> bytes:
    """The bytes of a file; those of a compressed one, which its name shows, unpacked."""
    with files.filesystem.open_input_stream(files.paths[file]) as stream:
        return bytes(stream.read())


def _wider(form: Form, known: Any, found: Any) -> Any:
    import pyarrow as pa

    if known.type == found.type:
        return known.type
    try:
        fields = [pa.schema([(found.name, one.type)]) for one in (known, found)]
        return pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return form.wider(found.name, known.type, found.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinarySource(FileSource):
    """A file for each row; a shuffle moves each by itself."""

    @property
    def window(self) -> int:
        return 1

    def table(self, block: Block) -> Any:
        import pyarrow as pa

        path = self.files.paths[block.file]
        with self.files.filesystem.open_input_stream(path, compression=None) as stream:
            return pa.table({BYTES: pa.array([stream.read()], pa.binary())})


def open_binary(files: Files, *, include_paths: bool) -> BinarySource:
    """Reads nothing."""
    import pyarrow as pa

    blocks = [Block(file=file, rows=1, start=0, stop=1) for file in range(len(files.paths))]
    paths = [{PATH: ""}] if include_paths else []
    schema = _with_values({BYTES: pa.field(BYTES, pa.binary())}, [*paths, *files.values])
    return BinarySource(files=files, groups=tuple(blocks), schema=schema)


# -- finding files --------------------------------------------------------------------------------


def found_files(
    paths: Paths,
    *,
    caller: str,
    filesystem: Any,
    extensions: Sequence[str] | None = None,
    ignore_missing: bool = False,
) -> Files:
    """The files at these paths, in their order; those of a directory or a pattern by name.

    `extensions` chooses among the files of directories. Folders named `key=value` give values.
    Names that begin with "." or "_" are left out, as those that other writers have not finished.

    Raises DatasetGone for a missing path, InvalidLocation for an unknown URI, InvalidConfig if no
    file is found.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise InvalidConfig(f"{caller}() needs at least one path")
    places = [Location.resolve(path, filesystem, os.environ) for path in given]
    fits = _fits(extensions)
    found: list[tuple[str, str]] = []
    for place in places:
        arrow_filesystem, name = place.arrow()
        with told(place.public, ""):
            found += _below(arrow_filesystem, name, place.public, fits, ignore_missing)
    if not found:
        kinds = f" that end with {listed(list(extensions), 10)}" if extensions else ""
        shown = ", ".join(place.public for place in places[:_SHOWN])
        raise InvalidConfig(f"{caller}() found no files{kinds} in {shown}")
    return Files(
        place=places[0],
        paths=tuple(path for path, _ in found),
        values=_typed([_values(path, root) for path, root in found]),
    )


def _is_pattern(path: str) -> bool:
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
        return [(path, name) for path in _listed_below(filesystem, name) if fits(path)]
    if _is_pattern(name):
        return [(path, root) for path, root in _matching(filesystem, name) if fits(path)]
    if ignore_missing:
        return []
    raise FileNotFoundError(public)


def _matching(filesystem: Any, pattern: str) -> list[tuple[str, str]]:
    """The files that fit a pattern of a shell; `**` fits any number of folders."""
    parts = pattern.split("/")
    fixed = next(at for at, part in enumerate(parts) if _is_pattern(part))
    root = "/".join(parts[:fixed])
    return [
        (path, root)
        for path in _listed_below(filesystem, root)
        if _matches(path.split("/")[fixed:], parts[fixed:])
    ]


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        return any(_matches(names[at:], parts[1:]) for at in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])


def _listed_below(filesystem: Any, root: str) -> list[str]:
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
