"""Lines of results as an Arrow table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.experiment.records.rows import encode, flatten_row

if TYPE_CHECKING:
    import pyarrow


def arrow_table(lines: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """A line for each of `lines`, a column for each name, in the order of their first appearance.

    Nested dicts are columns `a/b`, other containers JSON text, what a line does not have is null.
    A column of values of several kinds (but whole and other numbers) holds their text.
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
