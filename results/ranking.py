"""Compares trials and rows: the best, the Pareto front, the parameters that vary, tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.records.rows import AUTOMATIC, columns_of
from holdfast.lazy import PANDAS
from holdfast.plain_numbers import is_number
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.pareto import dominates
from holdfast.text.values import counted
from holdfast.trial.best import value_of
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.metrics import MODES
from holdfast.trial.trial import Trial
from holdfast.trial.values import flatten, key_name, readable

if TYPE_CHECKING:
    import pandas


_SIGNS: Final = {"max": 1.0, "min": -1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A trial and its last value of each goal, in the order of the goals."""

    trial: Trial
    values: tuple[float, ...]


def placed(trials: Iterable[Trial], goals: Iterable[str]) -> list[Placed]:
    """The trials with a finite last value of each goal that violate no constraint."""
    names = list(goals)
    found = ((trial, values_of(trial, names)) for trial in trials if not trial.is_infeasible)
    return [Placed(trial=trial, values=values) for trial, values in found if values is not None]


def values_of(trial: Trial, goals: Iterable[str]) -> tuple[float, ...] | None:
    """The trial's last value of each goal; None if one is missing or not finite."""
    values = [value_of(trial, goal) for goal in goals]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def pareto_front(candidates: Iterable[Placed], goals: Mapping[str, str]) -> list[Placed]:
    """Those that no other dominates, the best by the first goal first; equal ones are all kept."""
    signs = [_SIGNS[mode] for mode in goals.values()]
    points = [
        (tuple(sign * value for sign, value in zip(signs, one.values, strict=True)), one)
        for one in candidates
    ]
    front: list[tuple[tuple[float, ...], Placed]] = []
    # In this order, only an earlier point can dominate a later one.
    for point, one in sorted(points, key=lambda pair: pair[0], reverse=True):
        if not any(dominates(other, point) for other, _ in front):
            front.append((point, one))
    return [one for _, one in front]


def front_text(count: int) -> str:
    """`3 trials on the Pareto front`."""
    return f"{counted(count, 'trial', 'trials')} on the Pareto front"


def goals_text(goals: Mapping[str, str]) -> str:
    """`accuracy (max), time_s (min)`."""
    return ", ".join(f"{metric} ({mode})" for metric, mode in goals.items())


def params_of(trial: Trial) -> dict[str, Any]:
    """A trial's whole config, flat and as JSON values: `{"net/width": 64}`."""
    return flatten(readable(trial.config))


def varied_names(spec: ExperimentSpec, trials: Iterable[Trial]) -> list[str]:
    """The parameters that the search space varies, in its order.

    For a choice among dicts or lists, the parameters inside are named. Without a space in the
    records, the parameters in which the trials differ.
    """
    configs = [params_of(trial) for trial in trials]
    names = dict.fromkeys(name for config in configs for name in config)
    return varied_in(spec.whole_space, list(names), lambda name: _differs(configs, name))


def varied_in(
    space: Sequence[Mapping[str, Any]], names: Sequence[str], differs: Callable[[str], bool]
) -> list[str]:
    """Of the names of parameters, those that the space varies; without one, those that differ."""
    heads = [key_name(tuple(part["path"])) for part in space if part["varied"]]
    if heads:
        return [n for head in heads for n in names if n == head or n.startswith(f"{head}/")]
    return [name for name in names if differs(name)]


def _differs(configs: Sequence[Mapping[str, Any]], name: str) -> bool:
    first = configs[0].get(name)
    return any(name not in config or config[name] != first for config in configs)


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
    """True if `value` beats `than`. NaN beats nothing, and any number beats NaN."""
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
