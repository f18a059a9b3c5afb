"""A row as trackers take it: flat, and without what only a reader of files wants."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

# Of each row, but no measurement: known once and for all, or about files.
FACTS: Final = ("trial_id", "experiment_tag", "hostname", "node_ip", "pid")
_LEFT_OUT: Final = frozenset(
    {*FACTS, "config", "date", "done", "should_checkpoint", "checkpoint_dir_name"}
)


def flatten_dict(row: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`; an empty dict has nothing to show."""
    return dict(_flat(row, "", delimiter))


def _flat(row: Mapping[str, Any], path: str, delimiter: str) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}{delimiter}", delimiter)
        else:
            yield f"{path}{key}", value


def metrics_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured, flat. A metric of the user's that is named like one of ours is the
    user's; `config` and facts about the process stand elsewhere."""
    return flatten_dict({key: value for key, value in row.items() if key not in _LEFT_OUT})


def facts_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Where the attempt runs."""
    return {key: row[key] for key in FACTS if key in row}


def as_number(value: Any) -> float | None:
    """Its float, NaN and infinities too; None for what is none, or too large for one."""
    if not isinstance(value, (bool, int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def numbers_in(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are numbers."""
    found = ((key, as_number(value)) for key, value in metrics.items())
    return {key: number for key, number in found if number is not None}


def read_key(path: str | os.PathLike[str]) -> str:
    """The key in a file. Raises ValueError, naming it, where there is none."""
    try:
        key = Path(path).expanduser().read_text().strip()
    except OSError as error:
        raise ValueError(f"api_key_file={os.fspath(path)!r} cannot be read: {error}") from error
    if not key:
        raise ValueError(f"api_key_file={os.fspath(path)!r} is empty")
    return key
