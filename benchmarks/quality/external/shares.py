"""A contestant's regret as a share of another's: the ratio of means, and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.quality.external.runs import Runs

SAMPLES = 2000
LEVEL = 0.95
FEWEST_TASKS, FEWEST_SEEDS = 8, 5
"""With fewer, the interval says too little of the spread, and nothing is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The mean regret as a share of another's on the same `tasks` and seeds; `seeds`: the fewest
    of any task. `low` to `high` is the bootstrap interval at LEVEL."""

    share: float
    low: float
    high: float
    regret: float
    tasks: int
    seeds: int

    @property
    def is_enough(self) -> bool:
        return self.tasks >= FEWEST_TASKS and self.seeds >= FEWEST_SEEDS

    @property
    def verdict(self) -> str:
        """The proven difference: "better", "worse", or "" for neither."""
        if not self.is_enough:
            return ""
        return "better" if self.high < 1 else "worse" if self.low > 1 else ""


def share_of(
    ours: Runs, others: Runs, tasks: Sequence[str], workers: int, budget: float
) -> Share | None:
    """Over the tasks and seeds that both have run; None if there are none."""
    pairs = [
        pair for task in tasks if (pair := _pair(ours, others, task, workers, budget)).shape[1]
    ]
    if not pairs:
        return None
    means = np.array([pair.mean(axis=1) for pair in pairs])
    mine, theirs = means.mean(axis=0)
    if not theirs > 0:
        return None
    ratios = _resampled(pairs)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Share(
        share=float(mine / theirs), low=float(low), high=float(high), regret=float(mine),
        tasks=len(pairs), seeds=min(pair.shape[1] for pair in pairs),
    )  # fmt: skip


def _pair(ours: Runs, others: Runs, task: str, workers: int, budget: float) -> np.ndarray:
    """Two rows of regrets, a column for each seed."""
    mine, theirs = ours.of(task, workers), others.of(task, workers)
    seeds = [
        seed
        for seed in sorted(mine.keys() & theirs.keys())
        if budget in mine[seed] and budget in theirs[seed]
    ]
    rows = [[runs[seed][budget] for seed in seeds] for runs in (mine, theirs)]
    return np.array(rows).reshape(2, len(seeds))


def _resampled(pairs: Sequence[np.ndarray]) -> np.ndarray:
    """The ratio in each bootstrap sample: tasks, and seeds within each of them."""
    random = np.random.default_rng(0)
    sums = np.zeros((SAMPLES, 2))
    chosen = random.integers(len(pairs), size=(SAMPLES, len(pairs)))
    for at, pair in enumerate(pairs):
        count = (chosen == at).sum(axis=1)
        for draw in range(int(count.max())):
            seeds = random.integers(pair.shape[1], size=(SAMPLES, pair.shape[1]))
            means = pair[:, seeds].mean(axis=2).T
            sums += np.where((count > draw)[:, None], means, 0.0)
    return sums[:, 0] / np.maximum(sums[:, 1], 1e-12)
