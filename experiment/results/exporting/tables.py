"""Converts lines of results to an Arrow table, and writes them to a file: CSV, Parquet or JSON."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from holdfast.experiment.records.rows import encode, flatten_row
from holdfast.names import printable
from holdfast.syncer.files.durable import unique
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.values import finite

if TYPE_CHECKING:
    import pyarrow

FORMATS = ("csv", "parquet", "json")


def format_of(path: str | None) -> str:
    """The format that a file name's ending indicates; CSV if it has none."""
    return "csv" if path is None else path.rpartition(".")[2].lower()


def write_table(
    lines: Sequence[Mapping[str, Any]], path: str | None, form: str, *, replace: bool = False
) -> None:
    """Write the lines in one of FORMATS to a file, or to stdout if `path` is None.

    A terminal gets no control characters; a file and a pipe get every byte. The file appears when
    it is complete. JSON is one list of objects. Raises InvalidConfig if the file exists, unless
    `replace`, or its directory does not; OSError.
    """
    if path is None:
        _print(lines, form)
        return
    if os.path.exists(path) and not replace:
        raise InvalidConfig(f"{path} already exists: pass another name, or --force to replace it")
    if not os.path.isdir(folder := os.path.dirname(path) or "."):
        raise InvalidConfig(f"there is no directory {folder} for {path}: create it first")
    partial = f"{path}.{unique()}"
    try:
        with open(partial, "wb") as file:
            _write(lines, file, form)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def _print(lines: Sequence[Mapping[str, Any]], form: str) -> None:
    sys.stdout.flush()
    if not sys.stdout.isatty():
        _write(lines, sys.stdout.buffer, form)
        return
    shown = io.BytesIO()
    _write(lines, shown, form)
    print(printable(shown.getvalue().decode(), keep="\n"), end="", flush=True)


def _write(lines: Sequence[Mapping[str, Any]], file: IO[bytes], form: str) -> None:
    if form == "json":
        text = ",\n".join(encode(finite(line)) for line in lines)
        file.write(f"[{text}]\n".encode())
        return
    table = arrow_table(lines)
    if form == "parquet":
        from pyarrow import parquet

        parquet.write_table(table, file)
    else:
        from pyarrow import csv

        csv.write_csv(table, file)


def arrow_table(lines: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """A table with a row for each of `lines`, and a column for each name in the order of
    appearance.

    Nested dicts are columns `a/b`, other containers JSON text, missing values null. A column with
    values of several types (other than whole and other numbers) has them as text.
    """
    import pyarrow

    flat = [flatten_row(line) for line in lines]
    names = dict.fromkeys(name for line in flat for name in line)
    columns = {name: _column([line.get(name) for line in flat]) for name in names}
    return pyarrow.table(columns)


def _column(values: list[Any]) -> pyarrow.Array:
    import pyarrow

    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
        return pyarrow.array([_text(value) for value in values], pyarrow.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else encode(value)
