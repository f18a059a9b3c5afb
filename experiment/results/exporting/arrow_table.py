"""Converts lines of results to an Arrow table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.experiment.records.rows import encode, flatten_row

if TYPE_CHECKING:
    import pyarrow


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
