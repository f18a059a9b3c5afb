"""Errors of datasets, except invalid settings."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.trial.errors import InvalidConfig, TuneError


class DatasetGone(TuneError, FileNotFoundError):
    """A file of a dataset is missing or was replaced; the message names it."""


def unknown_column(column: str, columns: Iterable[str], caller: str) -> InvalidConfig:
    return InvalidConfig(
        f"{caller} names the column {column!r}, but the dataset has {', '.join(columns) or 'none'}"
    )


def check_batch_size(
    batch_size: object, *, or_none: bool = False, name: str = "batch_size"
) -> None:
    """Raises InvalidConfig for an invalid number of rows."""
    if batch_size is None and or_none:
        return
    if type(batch_size) is not int or batch_size < 1:
        more = ", or None for whole blocks" if or_none else ""
        raise InvalidConfig(f"{name}={batch_size!r} must be a whole number from 1 on{more}")


def check_seed(seed: int | None) -> int:
    """The seed; 0 for None. Raises InvalidConfig."""
    if seed is not None and (type(seed) is not int or seed < 0):
        raise InvalidConfig(f"seed={seed!r} must be a whole number from 0 on, or None")
    return seed or 0
