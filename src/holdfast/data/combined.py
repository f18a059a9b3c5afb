"""Sources made of other sources: mapped, chosen, one after the other, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from holdfast.data.batches import Chunk, RowPiece
from holdfast.data.formats import Mapped, applied, as_arrow, concatenated, rows_of
from holdfast.data.order import parts_of
from holdfast.data.sources import Source, TableSource
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

_ROWS_AT_ONCE = 4096


def mapped_tables(source: Source, maps: tuple[Mapped, ...]) -> Iterator[Any]:
    """All rows in stored order, after `maps`; a block, or with `maps` 4,096 rows, at once."""
    for table in _blocks(source):
        yield from _mapped(table, maps)


def keeps_rows(source: Source, maps: tuple[Mapped, ...]) -> bool:
    """True if `maps` return a row for each row. Calls them until they do not."""
    pieces = (piece for table in _blocks(source) for piece in _pieces(table))
    return all(rows_of(applied(maps, [piece])) == len(piece) for piece in pieces)


def _blocks(source: Source) -> Iterator[Any]:
    return (source.read(block, 0, size) for block, size in enumerate(source.sizes) if size)


def _mapped(table: Any, maps: tuple[Mapped, ...]) -> Iterator[Any]:
    if not maps:
        return iter((table,))
    return (as_arrow(applied(maps, [piece])) for piece in _pieces(table))


def _pieces(table: Any) -> Iterator[RowPiece]:
    chunk = Chunk(table.combine_chunks())
    for at in range(0, table.num_rows, _ROWS_AT_ONCE):
        yield RowPiece(chunk, None, at, min(at + _ROWS_AT_ONCE, table.num_rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedSource:
    """The rows of a source after functions."""

    source: Source
    maps: tuple[Mapped, ...]
    schema: Any
    is_slow: bool = True

    @property
    def sizes(self) -> Sequence[int]:
        return self.source.sizes

    @property
    def window(self) -> int:
        return self.source.window

    def read(self, block: int, start: int, stop: int) -> Any:
        return concatenated(list(_mapped(self.source.read(block, start, stop), self.maps)))

    def part(self, start: int, stop: int) -> MappedSource:
        return replace(self, source=self.source.part(start, stop))

    def check(self) -> None:
        self.source.check()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSource:
    """Some rows of a source: for each block, the numbers of its rows, in order."""

    source: Source
    chosen: tuple[Any, ...]

    @property
    def schema(self) -> Any:
        return self.source.schema

    @property
    def is_slow(self) -> bool:
        return self.source.is_slow

    @property
    def sizes(self) -> Sequence[int]:
        return [len(rows) for rows in self.chosen]

    @property
    def window(self) -> int:
        return self.source.window

    def read(self, block: int, start: int, stop: int) -> Any:
        rows = self.chosen[block][start:stop].astype("int64")
        first, last = int(rows[0]), int(rows[-1]) + 1
        return self.source.read(block, first, last).take(rows - first)

    def part(self, start: int, stop: int) -> ChosenSource:
        found, at = [], 0
        for rows in self.chosen:
            found.append(rows[max(start - at, 0) : max(stop - at, 0)])
            at += len(rows)
        return replace(self, chosen=tuple(found))

    def check(self) -> None:
        self.source.check()


def chosen_of(source: Source, mask: Any) -> Source:
    """The rows of a source for which `mask`, an array of booleans, is true."""
    import numpy as np

    if isinstance(source, TableSource):
        return TableSource(source.read(0, 0, len(mask)).take(np.flatnonzero(mask)))
    found, at = [], 0
    for size in source.sizes:
        found.append(np.flatnonzero(mask[at : at + size]).astype(np.uint32))
        at += size
    return ChosenSource(source=source, chosen=tuple(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedSource:
    """The rows of several sources, one after the other."""

    sources: tuple[Source, ...]
    schema: Any

    @property
    def is_slow(self) -> bool:
        return any(source.is_slow for source in self.sources)

    @property
    def sizes(self) -> Sequence[int]:
        return [size for source in self.sources for size in source.sizes]

    @property
    def window(self) -> int:
        return max(source.window for source in self.sources)

    def read(self, block: int, start: int, stop: int) -> Any:
        for source in self.sources:
            if block < len(source.sizes):
                found = source.read(block, start, stop)
                return found.select(self.schema.names).cast(self.schema)
            block -= len(source.sizes)
        raise IndexError(block)

    def part(self, start: int, stop: int) -> ChainedSource:
        rows = [sum(source.sizes) for source in self.sources]
        found = [
            self.sources[number].part(first, last)
            for number, first, last in parts_of(rows, start, stop)
        ]
        return replace(self, sources=tuple(found))

    def check(self) -> None:
        for source in self.sources:
            source.check()


def chained(sources: Sequence[Source]) -> ChainedSource:
    """Raises InvalidConfig if their columns differ."""
    import pyarrow as pa

    schemas = [source.schema for source in sources]
    names = {frozenset(schema.names) for schema in schemas}
    if len(names) > 1:
        shown = " and ".join(", ".join(schema.names) for schema in schemas[:2])
        raise InvalidConfig(f"union() of datasets with different columns: {shown}")
    try:
        schema = pa.unify_schemas(
            [schema.remove_metadata() for schema in schemas], promote_options="permissive"
        )
    except pa.ArrowException as error:
        raise InvalidConfig(f"union() of datasets with different types: {error}") from error
    return ChainedSource(sources=tuple(sources), schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZippedSource:
    """The columns of two sources with equally many rows, side by side, in the first one's
    blocks."""

    left: Source
    right: Source
    schema: Any

    @property
    def is_slow(self) -> bool:
        return self.left.is_slow or self.right.is_slow

    @property
    def sizes(self) -> Sequence[int]:
        return self.left.sizes

    @property
    def window(self) -> int:
        return self.left.window

    def read(self, block: int, start: int, stop: int) -> Any:
        import pyarrow as pa

        before = sum(self.left.sizes[:block])
        left = self.left.read(block, start, stop)
        parts = parts_of(self.right.sizes, before + start, before + stop)
        right = pa.concat_tables([self.right.read(*part) for part in parts])
        return pa.table([*left.columns, *right.columns], schema=self.schema)

    def part(self, start: int, stop: int) -> ZippedSource:
        return replace(self, left=self.left.part(start, stop), right=self.right.part(start, stop))

    def check(self) -> None:
        self.left.check()
        self.right.check()


def zipped(left: Source, right: Source) -> ZippedSource:
    """A name of the second source that the first has, too, gets "_1".

    Raises InvalidConfig for different numbers of rows.
    """
    import pyarrow as pa

    rows = sum(left.sizes), sum(right.sizes)
    if rows[0] != rows[1]:
        raise InvalidConfig(f"zip() of datasets with {rows[0]} and {rows[1]} rows")
    fields, names = list(left.schema), set(left.schema.names)
    for field in right.schema:
        name, number = field.name, 0
        while name in names:
            number += 1
            name = f"{field.name}_{number}"
        names.add(name)
        fields.append(field.with_name(name))
    return ZippedSource(left=left, right=right, schema=pa.schema(fields))
