"""Paired tests over seeds, and the margin within which one algorithm is as good as another.

A run's score is the regret of its incumbent, averaged over the time from one whole training to the
end, in units of random search's score on the task (its median): 1 is as good as random search.
Over several tasks it is the mean of those.

Runs of one seed are a pair: they have the same noise and, if both search at random, the same
configurations. Scores are skewed, and a lucky seed is an outlier: so the tests are Wilcoxon's,
which use ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

MARGIN = 0.15
"""How much worse than the peer's a score may be to count as equally good.

It is 15 % of random search's score: less than what an algorithm must gain for anyone to prefer it
to random search, so that random search does not count as good (the table says where it would). And
30 seeds can show it: for two random searches with different seeds, the scores on one task differ
by 0.3 to 1.0 (standard deviation; measured before any algorithm was compared), their mean over
five tasks by 0.3, and the mean of 30 of those by 0.055.
"""

LEVEL = 0.05
"""The probability of at least one false claim among all claims of a family of tests."""

Key = TypeVar("Key")


def not_worse(ours: Sequence[float], peers: Sequence[float], margin: float = MARGIN) -> float:
    """p of the claim that holdfast's scores are less than `margin` above the peer's, pair by
    pair."""
    return less(np.asarray(ours) - np.asarray(peers) - margin)


def better(ours: Sequence[float], others: Sequence[float]) -> float:
    """p of the claim that holdfast's scores are below the others, pair by pair."""
    return less(np.asarray(ours) - np.asarray(others))


def less(differences: Sequence[float] | np.ndarray) -> float:
    """p of Wilcoxon's signed-rank test of "the differences are below 0". 1 if all are 0."""
    from scipy.stats import wilcoxon  # a second of work, which the tests' collection need not do

    differences = np.round(np.asarray(differences, dtype=float), 12)
    if not differences.any():
        return 1.0
    return float(wilcoxon(differences, alternative="less", zero_method="zsplit").pvalue)


def holm(ps: Mapping[Key, float]) -> dict[Key, float]:
    """The p-values, adjusted so that all below LEVEL may be claimed together (Holm, 1979)."""
    adjusted: dict[Key, float] = {}
    least = 0.0
    for rank, key in enumerate(sorted(ps, key=lambda key: ps[key])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[key]))
        adjusted[key] = least
    return adjusted


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = np.quantile(np.asarray(samples), [0.25, 0.5, 0.75])
    return float(low), float(middle), float(high)
