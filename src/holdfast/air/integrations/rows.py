"""Converts rows for trackers: flat, and without values that only readers of files need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.experiment.records.rows import columns_of

# Values in each row that are not measurements: constants, or facts about files.
FACTS: Final = ("trial_id", "experiment_tag", "hostname", "node_ip", "node_name", "pid")
_LEFT_OUT: Final = frozenset(
    {*FACTS, "config", "date", "done", "should_checkpoint", "checkpoint_dir_name"}
)


def flatten_dict(row: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`; empty dicts are left out."""
    columns = columns_of(row)
    return {name: value for name, value in columns.items() if not isinstance(value, Mapping)}


def metrics_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a row, flat, without `config` and facts about the process.

    A user's metric with the name of an automatic one is a metric.
    """
    return flatten_dict({key: value for key, value in row.items() if key not in _LEFT_OUT})


def facts_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The facts about the process of the attempt."""
    return {key: row[key] for key in FACTS if key in row}


def as_number(value: Any) -> float | None:
    """The value as a float, also NaN and infinity; None if it is not a number, or too large for a
    float."""
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
