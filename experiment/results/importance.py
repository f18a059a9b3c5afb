"""How much each parameter matters for the metric, by one of three algorithms.

`rank`: the share of the variance of the metric's ranks that a parameter explains by itself,
adjusted for chance. For a number it is the squared rank correlation (C. Spearman, "The proof and
measurement of association between two things", 1904), for other values epsilon squared over the
ranks (T. L. Kelley, "An unbiased correlation ratio measure", 1935), as after a Kruskal-Wallis
test. It needs no library, and sees neither what two parameters do together nor a valley.

`forest`: the loss of R squared on trials that a random forest was not fitted to, when a
parameter's values are permuted among them (L. Breiman, "Random forests", Machine Learning 45,
2001), with scikit-learn. A forest that predicts no better than the mean says nothing.

Both judge a parameter that only some trials have among those.

`fanova`: the variance of a random forest's prediction that a parameter explains by itself, as a
share of what all of them do (F. Hutter, H. Hoos, K. Leyton-Brown, "An efficient approach for
assessing hyperparameter importance", ICML 2014), as Optuna computes it.
"""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from operator import mul
from typing import Any, Final, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.experiment.results.chance import (
    chance_of_folds,
    chance_of_ranks,
    largest_by_chance,
)
from holdfast.plain_numbers import is_number
from holdfast.trial.errors import InvalidConfig, TuneError

ALGORITHMS = ("auto", "rank", "forest", "fanova")
_FOLDS = 5
_FEWEST_FOREST = 10
_MOST_FOREST = 2_000
_REPEATS = 10


class _Absent(str):
    """Sorts before all texts."""


# In a column: the trial does not have the parameter.
ABSENT: Final = _Absent()


class ImportanceMissing(TuneError, ImportError):
    """The library of an algorithm is not installed; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importances:
    """`scores` by parameter, the most important first.

    `spread` is a standard error, if the algorithm computes one. `trials` is the number of trials
    with the metric. There are no scores if they were too few. A score above `chance` is one that
    chance alone gives in less than 1 of 20 cases (`holdfast.experiment.results.chance`); it is
    empty if the algorithm has no such test. `note` says why there are no scores, why they are by
    another algorithm, which parameters were left out, or that none is above chance.
    """

    algorithm: str
    metric: str
    trials: int
    scores: Mapping[str, float] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    chance: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def choose(algorithm: str, trials: int) -> str:
    """The algorithm that "auto" stands for: `forest` with scikit-learn and enough trials, else
    `rank`.

    Raises InvalidConfig.
    """
    if algorithm not in ALGORITHMS:
        raise InvalidConfig(f"algorithm must be one of {ALGORITHMS}, not {algorithm!r}")
    if algorithm != "auto":
        return algorithm
    has_forest = importlib.util.find_spec("sklearn") is not None
    return "forest" if has_forest and trials >= _FEWEST_FOREST else "rank"


def by_rank(columns: Mapping[str, Sequence[Any]], values: Sequence[float]) -> dict[str, float]:
    """Each parameter's adjusted share, from 0 to 1, among the trials that have it."""
    ranks = _unit(_ranks(values))
    return {name: _explainer(column)(ranks) for name, column in columns.items()}


def chance_by_rank(
    columns: Mapping[str, Sequence[Any]], values: Sequence[float]
) -> dict[str, float]:
    """For each parameter, the score of `by_rank` that chance alone exceeds in 1 of 20 cases.

    Few trials give high scores by chance: parameters that the same trials have are tested
    together, and each such group gets its part of the cases.
    """
    draw = random.Random(0)
    ranks = _unit(_ranks(values))
    groups: dict[tuple[bool, ...], list[str]] = {}
    for name, column in columns.items():
        groups.setdefault(tuple(value is not ABSENT for value in column), []).append(name)

    def shuffled(ranks: Sequence[float]) -> Sequence[float]:
        return draw.sample(ranks, len(ranks))

    found: dict[str, float] = {}
    for names in groups.values():
        explainers = [_explainer(columns[name]) for name in names]
        largest = largest_by_chance(explainers, ranks, shuffled)
        found |= dict.fromkeys(names, chance_of_ranks(largest, len(names) / len(columns)))
    return {name: found[name] for name in columns}


def _explainer(column: Sequence[Any]) -> Callable[[Sequence[float]], float]:
    """The adjusted share of the variance of ranks, as `_unit` gives them, that the column
    explains."""
    having = [at for at, value in enumerate(column) if value is not ABSENT]
    if len(having) < len(column):
        explain = _explainer([column[at] for at in having])
        return lambda ranks: explain(_unit(_ranks([ranks[at] for at in having])))
    if all(_is_finite(value) for value in column):
        across, groups = _unit(_ranks([float(value) for value in column])), 2

        def explained(ranks: Sequence[float]) -> float:
            return math.fsum(map(mul, across, ranks)) ** 2

    else:
        members: dict[str, list[int]] = {}
        for at, value in enumerate(column):
            members.setdefault(str(value), []).append(at)
        groups = len(members)

        def explained(ranks: Sequence[float]) -> float:
            sums = ((math.fsum(ranks[at] for at in g), len(g)) for g in members.values())
            return math.fsum(total * total / count for total, count in sums)

    spare = len(column) - groups

    def share(ranks: Sequence[float]) -> float:
        if spare <= 0:
            return 0.0
        return max(0.0, 1 - (1 - explained(ranks)) * (len(ranks) - 1) / spare)

    return share


def _ranks(values: Sequence[float]) -> list[float]:
    """The ranks from 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for place in order[at : end + 1]:
            ranks[place] = (at + end) / 2 + 1
        at = end + 1
    return ranks


def _unit(values: Sequence[float]) -> list[float]:
    """The deviations from the mean, divided so that their squares sum to 1; zeros for equal
    values."""
    mean = math.fsum(values) / len(values)
    apart = [value - mean for value in values]
    length = math.sqrt(math.fsum(map(mul, apart, apart)))
    return [one / length for one in apart] if length else apart


def _is_finite(value: object) -> bool:
    return is_number(value) and math.isfinite(value)


class ForestScores(NamedTuple):
    """The result of `by_forest`. `explained` is the forest's own R squared."""

    scores: dict[str, float]
    spread: dict[str, float]
    chance: dict[str, float]
    explained: float

    def doubt(self, metric: str) -> str:
        """Why the scores say nothing; "" if they do."""
        if not self.explained > 0:
            return (
                f"a random forest predicts {metric} no better than its mean on trials that it was "
                f"not fitted to (R² {self.explained:.2g}): these are the scores of 'rank'"
            )
        is_sure = any(score > self.chance[name] for name, score in self.scores.items())
        if not is_sure and max(self.chance.values()) > 1:
            return (
                "random forests that were fitted to different trials disagree too much: these are "
                "the scores of 'rank'"
            )
        return ""


def by_forest(columns: Mapping[str, Sequence[Any]], values: Sequence[float]) -> ForestScores:
    """Each parameter's mean loss of R squared over the folds, its standard error, and the loss
    that chance alone exceeds in 1 of 20 cases.

    R squared refers to the variance of all trials: that of the few in a fold may be tiny. Of more
    than 2,000 trials, a random 2,000 are used. Raises ImportanceMissing.
    """
    try:
        import numpy
        from scipy.stats import t as student
        from sklearn.ensemble import RandomForestRegressor
        from sklearn.model_selection import KFold
    except ImportError as error:
        raise ImportanceMissing(
            f"algorithm='forest' needs scikit-learn, which cannot be imported ({error}): "
            f"pip install scikit-learn, or use algorithm='rank'"
        ) from error
    known = numpy.array([_encoded(column) for column in columns.values()]).T
    have = numpy.array([[v is not ABSENT for v in column] for column in columns.values()]).T
    target = numpy.asarray(values, dtype=float)
    draw = numpy.random.default_rng(0)
    if len(target) > _MOST_FOREST:
        drawn = draw.choice(len(target), _MOST_FOREST, replace=False)
        known, have, target = known[drawn], have[drawn], target[drawn]
    variance = float(target.var()) or 1.0
    losses, errors = [], []
    folds = KFold(min(_FOLDS, len(target) // 2), shuffle=True, random_state=0)
    for fitted, held in folds.split(known):
        forest = RandomForestRegressor(n_estimators=100, random_state=0)
        forest.fit(known[fitted], target[fitted])

        def error_of(rows: Any, forest: Any = forest, held: Any = held) -> float:
            """The mean squared error for the trials that were held back."""
            return float(((forest.predict(rows) - target[held]) ** 2).mean()) / variance

        errors.append(error_of(known[held]))
        losses.append(
            [
                _permuted_error(known[held], have[held], at, draw, error_of) - errors[-1]
                for at in range(len(columns))
            ]
        )
    every = numpy.array(losses)
    means = every.mean(axis=0).clip(min=0)
    spreads = every.std(axis=0, ddof=1) / math.sqrt(len(every))
    spread = dict(zip(columns, map(float, spreads), strict=True))
    return ForestScores(
        scores=dict(zip(columns, map(float, means), strict=True)),
        spread=spread,
        chance=chance_of_folds(spread, len(losses), lambda p, df: float(student.ppf(p, df))),
        explained=1 - math.fsum(errors) / len(errors) if target.var() else 0.0,
    )


def _permuted_error(
    rows: Any, have: Any, at: int, draw: Any, error_of: Callable[[Any], float]
) -> float:
    """The mean error if the values of column `at` are permuted among the rows that have it."""
    having = have[:, at].nonzero()[0]
    found = []
    for _ in range(_REPEATS):
        permuted = rows.copy()
        permuted[having, at] = draw.permutation(rows[having, at])
        found.append(error_of(permuted))
    return math.fsum(found) / len(found)


def _encoded(column: Sequence[Any]) -> list[float]:
    """A column as numbers: missing values below all others, other values by the order of their
    texts."""
    numbers = [float(value) for value in column if _is_finite(value)]
    if all(value is None or value is ABSENT or _is_finite(value) for value in column):
        lowest = min(numbers, default=0.0)
        return [float(value) if _is_finite(value) else lowest - 1 for value in column]
    places = {text: at for at, text in enumerate(sorted({str(value) for value in column}))}
    return [float(places[str(value)]) for value in column]
