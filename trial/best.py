"""The best trial: by its last value or, once fresh runs have confirmed some, by their mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import finite_number
from holdfast.trial.metrics import lookup
from holdfast.trial.trial import Status, StopReason, Trial

Rank = tuple[float, float, int]

LEVEL: Final = 0.95
"""The confidence of the intervals, and of a difference that counts as shown."""
LEAST_RUNS: Final = 2
"""A spread needs two values, and without one there is no interval."""
_WHOLE = (StopReason.FINISHED, StopReason.STOPPER)


def rank(trial: Trial, metric: str | None, mode: str | None) -> Rank:
    """The sort key of trials: the value and then, as in `get_best_result`, the lower index.

    Without a value, the later report wins. A trial that violates a constraint has none.
    """
    value = None if trial.is_infeasible else value_of(trial, metric)
    if value is None:
        return (-math.inf, trial.reported_at, -trial.spec.index)
    return (-value if mode == "min" else value, 0.0, -trial.spec.index)


def leader(trials: Iterable[Trial], metric: str | None, mode: str | None) -> Trial | None:
    """The best of the trials: the one that fresh runs have confirmed, else the first by `rank`.
    None if none has a value, or there is no goal."""
    several = list(trials)
    if (won := winner(several, metric, mode)) is not None:
        return next(trial for trial in several if trial.trial_id == won.trial_id)
    searched = (trial for trial in several if not trial.spec.confirms)
    best = max(searched, key=lambda trial: rank(trial, metric, mode), default=None)
    if best is None or mode is None or best.is_infeasible:
        return None
    return None if value_of(best, metric) is None else best


def value_of(trial: Trial, metric: str | None) -> float | None:
    """The trial's last value of `metric`; None if it is missing, not a number, NaN or infinite."""
    if metric is None or trial.row is None:
        return None
    value = trial.row.get(metric)
    if value is None:
        value = lookup({**trial.shown_row, **_counted(trial)}, metric)
    return finite_number(value)


def _counted(trial: Trial) -> dict[str, float]:
    return {"training_iteration": trial.iteration, "time_total_s": trial.time_total_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """The fresh runs of the config of `trial_id`, and their last values of the metric.

    `value` is that of the trial itself in the search; `values` do not have it: it won because it
    was the best of many, which makes it better than the config is. `mean` has the 95 % interval
    from `low` to `high`; all three are None with fewer than two values. Only runs that trained to
    their end count. `is_tied`: no fresh run shows that the first of the list is better than this.
    """

    trial_id: str
    value: float | None
    values: tuple[float, ...]
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    is_tied: bool = False

    @property
    def runs(self) -> int:
        """How many fresh runs count."""
        return len(self.values)


def is_of_search(trial: Trial, metric: str | None) -> bool:
    """True for a trial of the search that has ended with a value: fresh runs may confirm it."""
    has_ended = trial.status is Status.TERMINATED and not trial.spec.confirms
    return has_ended and not trial.is_infeasible and value_of(trial, metric) is not None


def longest(searched: Iterable[Trial]) -> int:
    """The last iteration of the longest trial of the search."""
    return max((trial.iteration for trial in searched), default=0)


def is_too_short(fresh: Trial, until: int) -> bool:
    """True for a fresh run that ended where the longest trial of the search was then, while an
    extended search now has one until a later iteration: the two cannot be compared."""
    return fresh.has_trained_its_length and fresh.spec.trains_until < until


def winner(trials: Iterable[Trial], metric: str | None, mode: str | None) -> Confirmed | None:
    """The config with the best mean; None if none has enough fresh runs."""
    first = next(iter(confirmed(trials, metric, mode)), None)
    return None if first is None or first.mean is None else first


def confirmed(trials: Iterable[Trial], metric: str | None, mode: str | None) -> list[Confirmed]:
    """The configs that fresh runs confirm, the best mean first, then the lower index of the trial;
    those with too few runs last.

    Empty while they do not have the best trial of the search, which has ended since then.
    """
    several = list(trials)
    fresh = [trial for trial in several if trial.spec.confirms]
    if not fresh or metric is None or mode is None:
        return []
    several.sort(key=lambda trial: trial.spec.index)
    values: dict[str, list[float]] = {trial.spec.confirms: [] for trial in fresh}
    searched = [trial for trial in several if is_of_search(trial, metric)]
    best = max(searched, key=lambda trial: rank(trial, metric, mode), default=None)
    if best is None or best.trial_id not in values:
        return []
    until = longest(searched)
    for trial in {trial.trial_id: trial for trial in fresh}.values():
        is_known = _is_whole(trial) and not is_too_short(trial, until)
        value = value_of(trial, metric) if is_known else None
        if value is not None:
            values[trial.spec.confirms].append(value)
    known = {trial.trial_id: trial for trial in several if trial.trial_id in values}
    found = [
        _judged(one, value_of(trial, metric), tuple(values[one])) for one, trial in known.items()
    ]
    ranked = sorted(found, key=lambda one: _order(one, mode))
    return [_compared(one, ranked[0]) for one in ranked]


def _is_whole(trial: Trial) -> bool:
    """True if it has trained to its end: a time budget or a person may have cut it short."""
    return trial.status is Status.TERMINATED and (
        trial.stop is None or trial.stop.reason in _WHOLE
    )


def _order(one: Confirmed, mode: str) -> tuple[bool, float]:
    value = one.value if one.mean is None else one.mean
    if value is None:
        return True, math.inf
    return one.mean is None, value if mode == "min" else -value


def _judged(trial_id: str, value: float | None, values: tuple[float, ...]) -> Confirmed:
    if len(values) < LEAST_RUNS:
        return Confirmed(trial_id=trial_id, value=value, values=values)
    mean = _mean(values)
    margin = _quantile(len(values) - 1) * math.sqrt(_variance_of_mean(values))
    return Confirmed(
        trial_id=trial_id,
        value=value,
        values=values,
        mean=mean,
        low=mean - margin,
        high=mean + margin,
    )


def _compared(one: Confirmed, best: Confirmed) -> Confirmed:
    """With `is_tied`, by Welch's t-test: the spread of two configs may differ."""
    if one is best or one.mean is None or best.mean is None:
        return one
    first, second = _variance_of_mean(best.values), _variance_of_mean(one.values)
    variance, difference = first + second, abs(one.mean - best.mean)
    if not variance:
        return replace(one, is_tied=not difference)
    parts = first * first / (best.runs - 1) + second * second / (one.runs - 1)
    freedom = variance * variance / parts if parts else _MOST_FREEDOM
    is_shown = _share_within(difference / math.sqrt(variance), freedom) >= LEVEL
    return replace(one, is_tied=not is_shown)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(value / len(values) for value in values)


def _variance_of_mean(values: Sequence[float]) -> float:
    mean, count = _mean(values), len(values)
    return sum((value - mean) * (value - mean) for value in values) / (count - 1) / count


_STEPS: Final = 256
_MOST_FREEDOM: Final = 1e6


def _share_within(t: float, freedom: float) -> float:
    """The share of Student's distribution between -t and t.

    With t = sqrt(freedom) tan(a) its density becomes cos(a) ** (freedom - 1), which Simpson's rule
    integrates to nine digits.
    """
    power, step = freedom - 1, math.atan(t / math.sqrt(freedom)) / _STEPS
    heights = [math.cos(at * step) ** power for at in range(_STEPS + 1)]
    weighed = 4 * sum(heights[1::2]) + 2 * sum(heights[2:-1:2]) + heights[0] + heights[-1]
    half = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    return float(weighed * step / 3 / (half * math.sqrt(math.pi) / 2))


@lru_cache(maxsize=64)
def _quantile(freedom: int) -> float:
    """The t between whose negative and itself lies the share LEVEL. Each picture of a run asks
    for it, and finding it takes some milliseconds."""
    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < LEVEL else (low, middle)
    return high
