"""Parquet files, read row group by row group on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.data.errors import unknown_column
from holdfast.data.files.finding import (
    SHOWN,
    Block,
    Files,
    FileSource,
    Paths,
    is_pattern,
    listed_below,
    located,
    matching,
    told,
)
from holdfast.dataclass import dataclass
from holdfast.syncer.stores.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup(Block):
    """Rows of the row group `number` of a file."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource(FileSource[RowGroup]):
    """Row groups of files."""

    def table(self, block: RowGroup) -> Any:
        fragment = self._fragment(block.file).subset(row_group_ids=[block.number])
        return fragment.to_table(schema=self.schema)

    def _fragment(self, file: int) -> Any:
        """That of the last file is kept, so that its footer is read once."""
        import pyarrow.dataset as ds

        files = self.files
        found = files.opened.get(file)
        if found is None:
            found = ds.ParquetFileFormat().make_fragment(
                files.paths[file],
                filesystem=files.filesystem,
                partition_expression=files.partitions[file],
            )
            files.opened.clear()
            files.opened[file] = found
        return found

    def name_of(self, group: RowGroup) -> str:
        return f"row group {group.number} of {self.files.paths[group.file]}"


def open_parquet(paths: Paths, *, filesystem: Any, columns: Sequence[str] | None) -> ParquetSource:
    """Read the number of rows of each row group, and nothing else.

    Raises DatasetGone, InvalidConfig, InvalidLocation.
    """
    import pyarrow.dataset as ds

    places = located(paths, filesystem, "read_parquet")
    with told(", ".join(place.public for place in places[:SHOWN]), ""):
        names = [name for place in places for name in _names(place, is_only=len(places) == 1)]
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


def _names(place: Location, *, is_only: bool) -> list[str]:
    """The path of the place; its files if it is a pattern, or one directory of several."""
    import pyarrow.fs as arrow_fs

    filesystem, name = place.arrow()
    kind = filesystem.get_file_info(name).type
    if kind == arrow_fs.FileType.Directory and not is_only:
        return listed_below(filesystem, name)
    if kind == arrow_fs.FileType.NotFound and is_pattern(name):
        return [path for path, _ in matching(filesystem, name)] or [name]
    return [name]


def _chosen(schema: Any, columns: Sequence[str] | None) -> Any:
    import pyarrow as pa

    if columns is None:
        return schema
    for column in columns:
        if column not in schema.names:
            raise unknown_column(column, schema.names, f"read_parquet(columns={list(columns)!r})")
    return pa.schema([schema.field(column) for column in columns])
