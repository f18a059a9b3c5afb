"""Methods of a dataset that write its rows into files."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from holdfast.data.scheduling import without_scheduling
from holdfast.data.whole import Whole
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
        import pyarrow.dataset as ds

        options = {**arrow_parquet_args, **(arrow_parquet_args_fn or dict)()}
        group = options.pop("row_group_size", _ROWS_OF_A_GROUP)
        keys = self.checked(list(partition_cols or ()), f"write_parquet({partition_cols=})")
        rows = _rows(min_rows_per_file, num_rows_per_file, max_rows_per_file)

        def write(folder: Path, written: Callable[[Path], None]) -> None:
            kind = ds.ParquetFileFormat()
            self._write(
                folder,
                written,
                format=kind,
                file_options=kind.make_write_options(**options),
                partitioning=keys or None,
                partitioning_flavor="hive" if keys else None,
                max_rows_per_file=rows,
                max_rows_per_group=min(group, rows),
            )

        _written(path, filesystem, mode, write)

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
        import pyarrow.dataset as ds

        args = {**arrow_csv_args, **(arrow_csv_args_fn or dict)()}
        given = args.pop("write_options", None)
        if given is not None:
            names = ("include_header", "batch_size", "delimiter", "quoting_style")
            args = {name: getattr(given, name) for name in names} | args
        rows = _rows(min_rows_per_file, num_rows_per_file, None)

        def write(folder: Path, written: Callable[[Path], None]) -> None:
            kind = ds.CsvFileFormat()
            try:
                self._write(
                    folder,
                    written,
                    format=kind,
                    file_options=kind.make_write_options(**args),
                    max_rows_per_file=rows,
                    max_rows_per_group=min(_ROWS_OF_A_GROUP, rows),
                )
            except pa.ArrowException as error:
                raise InvalidConfig(f"write_csv(): {error}. Use write_parquet()") from error

        _written(path, filesystem, mode, write)

    @without_scheduling
    def write_json(
        self,
        path: Target,
        *,
        filesystem: Any = None,
        min_rows_per_file: int | None = None,
        num_rows_per_file: int | None = None,
        mode: Any = "append",
    ) -> None:
        """Write files with a JSON object on each line into the folder `path`, as `write_parquet`
        does. Times are texts. Raises InvalidConfig, StorageError."""
        rows = _rows(min_rows_per_file, num_rows_per_file, None)

        def write(folder: Path, written: Callable[[Path], None]) -> None:
            for number, start in enumerate(range(0, self.count(), rows)):
                target = folder / f"{number:06}.json"
                few = self.part(start, min(start + rows, self.count()))
                with target.open("w", encoding="utf-8") as file:
                    for table in few.tables():
                        file.writelines(_lines(table))
                written(target)

        _written(path, filesystem, mode, write)

    def _write(self, folder: Path, written: Callable[[Path], None], **options: Any) -> None:
        import pyarrow.dataset as ds

        ds.write_dataset(
            self.batches(),
            folder,
            basename_template="{i}." + options["format"].default_extname,
            use_threads=False,  # the rows keep their order
            file_visitor=lambda file: written(Path(file.path)),
            **options,
        )


def _rows(*given: int | None) -> int:
    """The rows of a file. Raises InvalidConfig."""
    for rows in given:
        if rows is not None and (type(rows) is not int or rows < 1):
            raise InvalidConfig(f"{rows!r} rows per file: a whole number from 1 on")
    return next((rows for rows in given if rows is not None), _ROWS_OF_A_FILE)


def _lines(table: Any) -> Iterator[str]:
    for row in table.to_pylist():
        yield json.dumps(row, default=str) + "\n"


def _written(
    path: Target,
    filesystem: Any,
    mode: Any,
    write: Callable[[Path, Callable[[Path], None]], None],
) -> None:
    """Let `write` make files in a temporary folder, and put each into storage when it is
    complete."""
    name = str(getattr(mode, "value", mode)).lower()
    if name not in _MODES:
        raise InvalidConfig(f"mode={mode!r} must be one of {', '.join(map(repr, _MODES))}")
    place = Location.resolve(path, filesystem, os.environ)
    old = [] if name == "append" else with_store(place, _keys)
    if old and name == "ignore":
        return
    if old and name == "error":
        raise InvalidConfig(f"{place.public} has files, and mode is 'error'")
    mark = uuid.uuid4().hex
    with TemporaryDirectory(prefix="holdfast-") as temporary:
        folder = Path(temporary)

        def put(file: Path) -> None:
            inner = file.relative_to(folder)
            key = (inner.parent / f"{mark}_{inner.name}").as_posix()
            with_store(place, lambda store: store.put(key, file))
            file.unlink()

        write(folder, put)
    if name == "overwrite" and old:
        with_store(place, lambda store: store.delete(old))


async def _keys(store: Store) -> list[str]:
    return [entry.key for entry in await store.list()]
