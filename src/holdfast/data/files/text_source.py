"""Files of lines, such as CSV: cut into blocks of whole rows, which are parsed on demand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from holdfast.data.files.finding import PATH, Block, Files, FileSource, told
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

# Of a file that is read at once. Parsed, it takes two to four times as much memory.
_BLOCK_BYTES = 8 << 20
# pyarrow knows them by these ends.
_COMPRESSED = (".br", ".bz2", ".gz", ".lz4", ".zst")
Header = tuple[str, ...]


class Form(ABC):
    """How bytes become rows. Picklable."""

    caller: str

    @abstractmethod
    def parse(self, data: bytes, header: Header | None, schema: Any) -> Any:
        """A table of these bytes, which are whole rows.

        `header` has the names of the columns, None if the data begins with its own. With a
        `schema`, the columns that it names have its types. Raises ArrowInvalid, ValueError.
        """

    def cut(self, data: bytes) -> int:
        """The place after the last whole row, 0 if there is none."""
        return data.rfind(b"\n") + 1

    def is_one_block(self, data: bytes) -> bool:
        """Whether a file with this beginning can only be read as a whole."""
        return False

    @abstractmethod
    def wider(self, column: str, one: Any, other: Any) -> Any:
        """A type for values that were read as `one` and as `other`. Raises ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock(Block):
    """Bytes of a file from `offset` on; without a `length` all of a file, perhaps compressed."""

    offset: int
    length: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource(FileSource[TextBlock]):
    """Blocks of files of lines. `headers` has the names of the columns of each file."""

    form: Form
    headers: tuple[Header, ...]

    def table(self, block: TextBlock) -> Any:
        path = self.files.paths[block.file]
        data = _bytes(self.files.filesystem, path, block.offset, block.length)
        header = self.headers[block.file] if block.offset else None
        try:
            found = self.form.parse(data, header, self.schema)
        except ValueError as error:
            raise OSError(str(error)) from error
        return _completed(found, self.schema, self.files.partitions[block.file], path)


def open_text(files: Files, form: Form, *, include_paths: bool) -> TextSource:
    """Read all files once, block by block, to know the rows and the type of each column.

    Raises DatasetGone, InvalidConfig for a file that cannot be parsed.
    """
    import pyarrow as pa

    groups: list[TextBlock] = []
    headers: list[Header] = []
    types: dict[str, Any] = {}
    for file, path in enumerate(files.paths):
        header: Header = ()
        with told(path, ""):
            for offset, length, data in _blocks(files.filesystem, path, form):
                table = _parsed(form, path, data, header if offset else None)
                header = header or tuple(table.column_names)
                for column in table.schema:
                    types[column.name] = _wider(form, path, types, column)
                rows = table.num_rows
                if rows:
                    groups.append(
                        TextBlock(
                            file=file, offset=offset, length=length, rows=rows, start=0, stop=rows
                        )
                    )
        headers.append(header)
    values = [*files.partitions, *([{PATH: ""}] if include_paths else [])]
    for key, value in ((key, value) for found in values for key, value in found.items()):
        types[key] = pa.scalar(value).type
    return TextSource(
        files=files,
        groups=tuple(groups),
        schema=pa.schema(list(types.items())),
        form=form,
        headers=tuple(headers),
    )


def _blocks(filesystem: Any, path: str, form: Form) -> Iterator[tuple[int, int | None, bytes]]:
    """(offset, length, bytes) of the blocks of a file."""
    if path.lower().endswith(_COMPRESSED):
        yield 0, None, _bytes(filesystem, path, 0, None)
        return
    offset, held = 0, b""
    with filesystem.open_input_stream(path, compression=None) as stream:
        while read := stream.read(_BLOCK_BYTES):
            held += read
            if not offset and form.is_one_block(held):
                yield 0, None, held + stream.read()
                return
            if cut := form.cut(held):
                yield offset, cut, held[:cut]
                offset, held = offset + cut, held[cut:]
    if held:
        yield offset, len(held), held


def _bytes(filesystem: Any, path: str, offset: int, length: int | None) -> bytes:
    if length is None:
        with filesystem.open_input_stream(path) as stream:  # detects the compression
            return bytes(stream.read())
    with filesystem.open_input_file(path) as file:
        return bytes(file.read_at(length, offset))


def _parsed(form: Form, path: str, data: bytes, header: Header | None) -> Any:
    import pyarrow as pa

    try:
        return form.parse(data, header, None)
    except (pa.ArrowInvalid, ValueError) as error:
        raise InvalidConfig(f"{form.caller}() cannot parse {path}: {error}") from error


def _wider(form: Form, path: str, types: dict[str, Any], column: Any) -> Any:
    import pyarrow as pa

    known = types.get(column.name, column.type)
    if known == column.type:
        return known
    try:
        fields = [pa.schema([(column.name, kind)]) for kind in (known, column.type)]
        return pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except pa.ArrowException:
        try:
            return form.wider(column.name, known, column.type)
        except ValueError as error:
            raise InvalidConfig(f"{form.caller}() cannot parse {path}: {error}") from error


def _completed(table: Any, schema: Any, values: dict[str, Any], path: str) -> Any:
    """The columns of the schema; those that the file does not have are empty."""
    import pyarrow as pa

    constants = {PATH: path, **values}
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(table.column(field.name).cast(field.type))
        else:
            value = pa.scalar(constants.get(field.name), field.type)
            columns.append(pa.repeat(value, table.num_rows))
    return pa.table(columns, schema=schema)
