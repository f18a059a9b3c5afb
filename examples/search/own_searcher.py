"""Your own search algorithm: it tries configs near the best one so far.

    python examples/search/own_searcher.py --storage /tmp/results --name own

Its answers depend only on the results so far and on a seed, so after a kill and a restart it
continues as if nothing had happened.
"""

from __future__ import annotations

import random
from typing import Any

from shared import curve

from holdfast.tune.search import ConcurrencyLimiter, Searcher


class Climber(Searcher):
    """A (1+1) strategy: the best config so far, each number changed by up to half of it."""

    def __init__(self, start: dict[str, float], seed: int = 0) -> None:
        super().__init__(metric="loss", mode="min")
        self.best, self.loss = start, float("inf")
        self.seed = seed
        self.count = 0
        self.waiting: dict[str, dict[str, Any]] = {}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        rng = random.Random(f"{self.seed}/{self.count}")
        config = {key: value * (0.5 + rng.random()) for key, value in self.best.items()}
        config["momentum"] = min(config["momentum"], 0.99)
        config["features"] = max(2, round(config["features"]))
        self.recall(trial_id, config)
        return config

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.count += 1
        self.waiting[trial_id] = config

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        config = self.waiting.pop(trial_id)
        if result is not None and not error and result["loss"] < self.loss:
            self.best, self.loss = config, result["loss"]


def make_search() -> ConcurrencyLimiter:
    # Two at a time: more would search near a config that is soon no longer the best.
    return ConcurrencyLimiter(
        Climber({"lr": 0.05, "momentum": 0.5, "features": 10}), max_concurrent=2
    )


if __name__ == "__main__":
    curve.main(__doc__, make_search, space={})
