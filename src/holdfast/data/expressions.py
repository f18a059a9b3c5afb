"""Expressions of columns for `filter(expr=...)` and `with_column`: pyarrow's, by Ray's names."""

from __future__ import annotations

from typing import Any


def col(name: str) -> Any:
    """The values of a column: `col("x") > 5`, `(col("x") + 1) / 2`, `col("x").is_null()`."""
    import pyarrow.compute as pc

    return pc.field(name)


def lit(value: Any) -> Any:
    """One value."""
    import pyarrow.compute as pc

    return pc.scalar(value)


__all__ = ["col", "lit"]
