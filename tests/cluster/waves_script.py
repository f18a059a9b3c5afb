"""A user's script whose search suggests three trials, and two more once the test has ordered them.

Each trial marks both of its epochs and waits at their gates. The first argument is the storage,
the second a file that orders the further trials; "" for none of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.search import Searcher
from tests.rig.script import mark, wait_at

STORAGE, ORDER = sys.argv[1:]
FIRST = 3


class Waves(Searcher):
    """Asked again whenever a trial reports."""

    def __init__(self) -> None:
        super().__init__(metric="epoch", mode="max")
        self.count = 0

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if self.count >= FIRST and not Path(ORDER).exists():
            return None
        self.recall(trial_id, {})
        return {"number": self.count - 1}

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.count += 1

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Nothing follows from it."""


def train(config: dict[str, Any]) -> None:
    for epoch in (1, 2):
        mark("at", config["number"], epoch)
        wait_at(f"{config['number']}-{epoch}")
        tune.report({"epoch": epoch})


if __name__ == "__main__":
    results = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        tune_config=tune.TuneConfig(search_alg=Waves(), num_samples=FIRST + 2 * bool(ORDER)),
        run_config=tune.RunConfig(storage_path=STORAGE, name="run"),
    ).fit()
    print("EPOCHS", [(result.metrics or {}).get("epoch") for result in results])
