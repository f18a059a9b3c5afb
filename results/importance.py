"""The importance of each parameter for the metric, by one of three algorithms.

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

Scores of `rank` and `forest` are tested against chance. `chance_of_ranks` is a permutation test
(R. A. Fisher, "The Design of Experiments", 1935) of the largest score of all parameters, so that
many parameters do not make one seem important (P. H. Westfall and S. S. Young, "Resampling-Based
Multiple Testing", 1993). `chance_of_folds` is Student's test of the mean over the folds of a
cross-validation, with the variance that overlapping training sets have (C. Nadeau and Y. Bengio,
"Inference for the Generalization Error", Machine Learning 52, 2003), for each parameter by
Bonferroni.
"""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from operator import mul
from typing import Any, Final, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number
from holdfast.trial.errors import InvalidConfig, TuneError

LEVEL = 0.05
_FEWEST_EVER = 3
# A permutation of 100 trials and 10 parameters takes 0.1 ms.
_MOST_PERMUTATIONS, _LEAST_PERMUTATIONS = 399, 19
_MOST_PRODUCTS = 4_000_000


def fewest(parameters: int) -> int:
    """The least number of trials that can say anything about this many parameters.

    With n trials, one of n! orders is the one that a parameter explains perfectly, and one is its
    reverse. With fewer trials, chance gives at least one of the parameters such a ranking more
    often than in 1 of 20 cases.
    """
    trials = _FEWEST_EVER
    while 2 * parameters / math.factorial(trials) > LEVEL:
        trials += 1
    return trials


def permutations(trials: int, parameters: int) -> int:
    """The number of permutations to try: fewer of many trials, of which each takes longer."""
    affordable = _MOST_PRODUCTS // max(1, trials * parameters)
    return min(_MOST_PERMUTATIONS, max(_LEAST_PERMUTATIONS, affordable))


def chance_of_ranks(largest: Iterable[float], part: float = 1.0) -> float:
    """The score that chance alone exceeds in 1 of 20 cases, or in a `part` of them (by
    Bonferroni), from the largest score of each permutation of the values."""
    ranked = sorted(largest)
    at = math.ceil((1 - LEVEL * part) * (len(ranked) + 1)) - 1
    return ranked[min(at, len(ranked) - 1)]


def chance_of_folds(
    spread: Mapping[str, float], folds: int, quantile: Callable[[float, int], float]
) -> dict[str, float]:
    """For each parameter, the mean that chance alone exceeds in 1 of 20 cases.

    `spread` has standard errors as if the folds were independent. `quantile` is that of Student's
    distribution, for a probability and degrees of freedom.
    """
    factor = math.sqrt((1 / folds + 1 / (folds - 1)) / (1 / folds))
    times = factor * quantile(1 - LEVEL / max(1, len(spread)), folds - 1)
    return {name: times * error for name, error in spread.items()}


def needed(score: float, chance: float, trials: int) -> int | None:
    """About how many trials would tell this score from chance; None if no number would.

    The part of the variance that chance explains falls as 1 / (trials - 1).
    """
    return math.ceil(1 + (trials - 1) * chance / score) if score > 0.01 else None


def too_few(metric: str, trials: int, parameters: int) -> str:
    """The reason why there are no scores; "" if there can be some."""
    if not trials:
        return f"no trial has reported {metric}"
    least = fewest(parameters)
    if trials >= least and parameters:
        return ""
    if not parameters:
        return f"the {trials} trials that reported {metric} have no parameter that varies"
    of = "1 parameter" if parameters == 1 else f"{parameters} parameters"
    return (
        f"importance of {of} needs {least} trials that reported {metric}, and there are {trials}: "
        "with fewer, chance alone ranks the trials perfectly in more than 1 of 20 cases"
    )


def left_out(having: Mapping[str, int], least: int) -> str:
    """A note on parameters that too few trials have; "" if there are none."""
    rare = [f"{name} (in {count})" for name, count in having.items() if count < least]
    return f"not judged, because fewer than {least} trials have it: {', '.join(rare)}" * bool(rare)


def within_chance(
    scores: Mapping[str, float],
    chance: Mapping[str, float],
    trials: int,
    having: Mapping[str, int] | None = None,
) -> str:
    """A warning if no score says more than chance; "" otherwise.

    `having` counts the trials that have each parameter, by default all.
    """
    if not chance or any(score > chance[name] for name, score in scores.items()):
        return ""
    name = max(scores, key=scores.__getitem__)
    count = (having or {}).get(name, trials)
    more = needed(scores[name], chance[name], count)
    hint = "" if more is None else f". About {more} trials would tell a score as high from it"
    of = f"{trials} trials" if count == trials else f"the {count} trials that have it"
    return (
        f"importance: no parameter stands out from chance. {name} has the highest score, "
        f"{scores[name]:.2f}, and with {of} chance alone reaches "
        f"{chance[name]:.2f} in 1 of 20 cases{hint}"
    )


def largest_by_chance(
    explainers: Sequence[Callable[[Sequence[float]], float]],
    ranks: Sequence[float],
    shuffled: Callable[[Sequence[float]], Sequence[float]],
) -> Iterable[float]:
    """The largest score of all parameters for each permutation of the ranks."""
    for _ in range(permutations(len(ranks), len(explainers))):
        order = shuffled(ranks)
        yield max(explain(order) for explain in explainers)


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
    chance alone gives in less than 1 of 20 cases (`holdfast.results.importance`); it is
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
        """The reason why the scores say nothing; "" if they do."""
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
