"""Whole files as rows."""

from __future__ import annotations

from typing import Any

from holdfast.data.files.finding import PATH, Block, Files, FileSource
from holdfast.dataclass import dataclass

BYTES = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class BinarySource(FileSource[Block]):
    """A file for each row; a shuffle moves each by itself."""

    @property
    def window(self) -> int:
        return 1

    def table(self, block: Block) -> Any:
        import pyarrow as pa

        path = self.files.paths[block.file]
        with self.files.filesystem.open_input_stream(path, compression=None) as stream:
            content = stream.read()
        columns = {BYTES: content, PATH: path, **self.files.partitions[block.file]}
        row = {name: columns.get(name) for name in self.schema.names}
        return pa.Table.from_pylist([row], schema=self.schema)


def open_binary(files: Files, *, include_paths: bool) -> BinarySource:
    """Reads nothing."""
    import pyarrow as pa

    blocks = [Block(file=file, rows=1, start=0, stop=1) for file in range(len(files.paths))]
    fields: dict[str, Any] = {BYTES: pa.binary()}
    if include_paths:
        fields[PATH] = pa.string()
    for values in files.partitions:
        fields |= {key: pa.scalar(value).type for key, value in values.items()}
    return BinarySource(files=files, groups=tuple(blocks), schema=pa.schema(list(fields.items())))
