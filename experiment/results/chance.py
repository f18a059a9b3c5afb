"""Whether scores of importance say more than chance. Pure: no I/O.

`chance_of_ranks` is a permutation test (R. A. Fisher, "The Design of Experiments", 1935) of the
largest score of all parameters, so that many parameters do not make one seem important (P. H.
Westfall and S. S. Young, "Resampling-Based Multiple Testing", 1993).

`chance_of_folds` is Student's test of the mean over the folds of a cross-validation, with the
variance that overlapping training sets have (C. Nadeau and Y. Bengio, "Inference for the
Generalization Error", Machine Learning 52, 2003), for each parameter by Bonferroni.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

LEVEL = 0.05
_FEWEST_EVER = 3
# A permutation of 100 trials and 10 parameters takes 0.1 ms.
_MOST_PERMUTATIONS, _LEAST_PERMUTATIONS = 399, 19
_MOST_PRODUCTS = 4_000_000


def fewest(parameters: int) -> int:
    """How many trials can say anything about this many parameters.

    With n trials, one of n! orders is the one that a parameter explains perfectly, and one is its
    reverse. With fewer trials, chance gives at least one of the parameters such a ranking more
    often than in 1 of 20 cases.
    """
    trials = _FEWEST_EVER
    while 2 * parameters / math.factorial(trials) > LEVEL:
        trials += 1
    return trials


def permutations(trials: int, parameters: int) -> int:
    """How many permutations to try: fewer of many trials, of which each takes longer."""
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
    """Why there are no scores; "" if there can be some."""
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
    """Which parameters too few trials have; "" if there are none."""
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
