"""Compares rows of metrics, and makes tables of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.experiment.records.rows import columns_of
from holdfast.lazy import PANDAS
from holdfast.plain_numbers import is_number
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.metrics import MODES

if TYPE_CHECKING:
    import pandas

# Metrics that every row has: the user's own are shown before them.
AUTOMATIC = frozenset(
    {
        "checkpoint_dir_name",
        "config",
        "date",
        "done",
        "experiment_tag",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "node_name",
        "pid",
        "should_checkpoint",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "training_iteration",
        "trial_id",
    }
)


class NoBestResult(TuneError, RuntimeError):
    """No trial can be best by `metric`; `reported` names the metrics that exist."""

    def __init__(self, message: str, metric: str, reported: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.metric = metric
        self.reported = tuple(reported)


class PandasMissing(TuneError, ImportError):
    """A DataFrame was requested, but pandas is not installed."""


def check_mode(mode: str) -> str:
    """Raises InvalidConfig unless `mode` is "max" or "min"."""
    if mode not in MODES:
        raise InvalidConfig(f"mode must be 'max' or 'min', not {mode!r}")
    return mode


def is_better(value: float, than: float, mode: str) -> bool:
    """Whether `value` beats `than`. NaN beats nothing, and any number beats NaN."""
    if math.isnan(than):
        return not math.isnan(value)
    return value > than if mode == "max" else value < than


def index_of_best(values: Sequence[float | None], mode: str) -> int | None:
    """The index of the best finite value, the first of equal ones; None if there is none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    return values.index(max(known) if mode == "max" else min(known))


def reported_names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The metrics in some rows, those of the user first; without the config."""
    names = {name for row in rows for name in columns_of({**row, "config": None})}
    names.discard("config")
    return [*sorted(names - AUTOMATIC), *sorted(names & AUTOMATIC)]


def analysed(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """For each metric that is a number in some of a trial's rows, oldest first: its extremes, its
    last value and its averages."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in columns_of({**row, "config": None}).items():
            if is_number(value):
                values.setdefault(name, []).append(value)
    return {
        name: {
            "max": max(found),
            "min": min(found),
            "avg": _mean(found),
            "last": found[-1],
            "last-5-avg": _mean(found[-5:]),
            "last-10-avg": _mean(found[-10:]),
        }
        for name, found in values.items()
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def dataframe(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """A line for each row. Raises PandasMissing, saying how to install it."""
    try:
        import pandas
    except ImportError as error:
        raise PandasMissing(PANDAS.missing("a table of results", error)) from error
    return pandas.DataFrame.from_records([dict(row) for row in rows])
