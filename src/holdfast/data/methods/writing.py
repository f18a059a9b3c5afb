"""Methods of a dataset that write its rows into files."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from holdfast.data.methods.whole import Whole
from holdfast.data.scheduling import without_scheduling
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import Store
from holdfast.trial.errors import InvalidConfig

Target = str | os.PathLike[str]

_ROWS_OF_A_FILE: Final = 1 << 20
_ROWS_OF_A_GROUP: Final = 1 << 16
_MODES: Final = ("append", "overwrite", "ignore", "error")


class Writing(Whole):
    """Writers. A file appears under its name when it is complete, one after the other; other files
    of the folder stay, unless `mode` is "overwrite". Its names are new in each call."""

    @without_scheduling
    def write_parquet(
        self,
        path: Target,
        *,
        partition_cols: Sequence[str] | None = None,
        filesystem: Any = None,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        num_rows_per_file: int | None = None,
        mode: Any = "append",
        arrow_parquet_args_fn: Callable[[], dict[str, Any]] | None = None,
        **arrow_parquet_args: Any,
    ) -> None:
        """Write Parquet files into the folder `path`, on this machine or at any URI.

        A file has a million rows, or as many as you say, in row groups of 65,536.
        `partition_cols`: a folder `column=value` for each value. `mode`: "append", "overwrite"
        (the older files are deleted when the new ones are written), "ignore" or "error" if the
        folder has files. Other arguments are those of `pyarrow.parquet.ParquetWriter`.

        Raises InvalidConfig, StorageError.
        """
        import pyarrow.parquet as pq

        options = {**arrow_parquet_args, **(arrow_parquet_args_fn or dict)()}
        group = options.pop("row_group_size", _ROWS_OF_A_GROUP)
        keys = self.checked(list(partition_cols or ()), f"write_parquet({partition_cols=})")

        def write(few: Self, file: Path) -> None:
            with pq.ParquetWriter(file, self.schema(), **options) as writer:
                for table in _regrouped(few.batches(), group):
                    writer.write_table(table, group)

        def write_folders(few: Self, folder: Path) -> None:
            pq.write_to_dataset(few.to_arrow(), folder, partition_cols=keys, **options)

        rows = _rows(min_rows_per_file, num_rows_per_file, max_rows_per_file)
        write_part = write_folders if keys else write
        self._write(path, filesystem, mode, rows, "" if keys else ".parquet", write_part)

    @without_scheduling
    def write_csv(
        self,
        path: Target,
        *,
        filesystem: Any = None,
        min_rows_per_file: int | None = None,
        num_rows_per_file: int | None = None,
        mode: Any = "append",
        arrow_csv_args_fn: Callable[[], dict[str, Any]] | None = None,
        **arrow_csv_args: Any,
    ) -> None:
        """Write CSV files into the folder `path`, as `write_parquet` does.

        Other arguments are those of `pyarrow.csv.WriteOptions`, or `write_options`.

        Raises InvalidConfig, also for columns of lists; StorageError.
        """
        import pyarrow as pa
        from pyarrow import csv

        args = {**arrow_csv_args, **(arrow_csv_args_fn or dict)()}
        options = args.pop("write_options", None) or csv.WriteOptions(**args)

        def write(few: Self, file: Path) -> None:
            try:
                with csv.CSVWriter(file, self.schema(), write_options=options) as writer:
                    for batch in few.batches():
                        writer.write_batch(batch)
            except pa.ArrowException as error:
                raise InvalidConfig(f"write_csv(): {error}. Use write_parquet()") from error

        rows = _rows(min_rows_per_file, num_rows_per_file)
        self._write(path, filesystem, mode, rows, ".csv", write)

    @without_scheduling
    def write_json(
        self,
        path: Target,
        *,
        filesystem: Any = None,
        min_rows_per_file: int | None = None,
        num_rows_per_file: int | None = None,
        mode: Any = "append",
        **ray_remote_args: Any,
    ) -> None:
        """Write files with a JSON object on each line into the folder `path`, as `write_parquet`
        does. Times are texts. Raises InvalidConfig, StorageError."""

        def write(few: Self, file: Path) -> None:
            with file.open("w", encoding="utf-8") as text:
                for table in few.tables():
                    text.writelines(_lines(table))

        rows = _rows(min_rows_per_file, num_rows_per_file)
        self._write(path, filesystem, mode, rows, ".json", write)

    def _write(
        self,
        path: Target,
        filesystem: Any,
        mode: Any,
        rows: int,
        suffix: str,
        write: Callable[[Self, Path], None],
    ) -> None:
        """Write parts of so many rows in a temporary folder, and put the files of each into
        storage when they are complete."""
        place = Location.resolve(path, filesystem, os.environ)
        old = _older(place, mode)
        if old is None:
            return
        mark = uuid.uuid4().hex
        for number, start in enumerate(range(0, sum(self.source.sizes), rows)):
            with TemporaryDirectory(prefix="holdfast-") as temporary:
                few = self.over(self.source.part(start, start + rows), self.maps)
                write(few, Path(temporary) / f"{number:06}{suffix}")
                _put(place, Path(temporary), mark)
        if old:
            with_store(place, lambda store: store.delete(old))


def _put(place: Location, folder: Path, mark: str) -> None:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            first, *inner = file.relative_to(folder).parts
            key = "/".join([*inner[:-1], f"{mark}_{first.partition('.')[0]}{file.suffix}"])
            with_store(place, partial(_put_one, key, file))


async def _put_one(key: str, file: Path, store: Store) -> None:
    await store.put(key, file)


def _older(place: Location, mode: Any) -> list[str] | None:
    """The files to delete afterwards; None if nothing is to be written. Raises InvalidConfig."""
    name = str(getattr(mode, "value", mode)).lower()
    if name not in _MODES:
        raise InvalidConfig(f"mode={mode!r} must be one of {', '.join(map(repr, _MODES))}")
    found = [] if name == "append" else with_store(place, _keys)
    if found and name == "error":
        raise InvalidConfig(f"{place.public} has files, and mode is 'error'")
    return None if found and name == "ignore" else found


def _regrouped(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Tables of at least so many rows, but for the last one."""
    import pyarrow as pa

    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= rows:
            table = pa.Table.from_batches(held)
            whole = table.num_rows - table.num_rows % rows
            yield table.slice(0, whole)
            held = table.slice(whole).to_batches()
    if held:
        yield pa.Table.from_batches(held)


def _rows(*given: int | None) -> int:
    """The rows of a file. Raises InvalidConfig."""
    for rows in given:
        if rows is not None and (type(rows) is not int or rows < 1):
            raise InvalidConfig(f"{rows!r} rows per file: a whole number from 1 on")
    return next((rows for rows in given if rows is not None), _ROWS_OF_A_FILE)


def _lines(table: Any) -> Iterator[str]:
    for row in table.to_pylist():
        yield json.dumps(row, default=str, separators=(",", ":")) + "\n"


async def _keys(store: Store) -> list[str]:
    return [entry.key for entry in await store.list()]
