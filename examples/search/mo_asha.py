"""Multi-objective ASHA: a small loss and a small model, and the trade-off between them.

    python examples/search/mo_asha.py --storage /tmp/results --name pareto --samples 50

The scheduler has its own goals; TuneConfig(metric="loss") only sets the metric of
`get_best_result()`. At the end the script prints the Pareto front: the trials that no other beats
in both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from shared import curve

from holdfast import tune
from holdfast.tune.schedulers import MultiObjectiveASHAScheduler
from holdfast.tune.search import BasicVariantGenerator

SPACE = {"lr": tune.loguniform(1e-2, 3), "size": tune.randint(1, 40)}


def train_fn(config: dict[str, Any]) -> None:
    """Fit a curve as a sum of `size` random waves, by gradient descent."""
    rng = np.random.default_rng(0)
    inputs = np.linspace(-1, 1, 200)
    waves = np.cos(np.outer(inputs, rng.normal(0, 4, config["size"])) + rng.uniform(0, 6))
    weights = np.zeros(config["size"])
    for _ in range(9):
        for _ in range(20):
            error = waves @ weights - np.sin(5 * inputs)
            weights -= config["lr"] / config["size"] * waves.T @ error / len(inputs)
        tune.report({"loss": float(np.mean(error**2)), "size": config["size"]})


def make_search() -> BasicVariantGenerator:
    return BasicVariantGenerator(random_state=7)


def pareto_front(results: tune.ResultGrid) -> list[dict[str, Any]]:
    """The newest reports that no other beats in both."""
    rows = [dict(result.metrics or {}) for result in results]

    def beats(one: dict[str, Any], other: dict[str, Any]) -> bool:
        pairs = [(one[key], other[key]) for key in ("loss", "size")]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    front = [row for row in rows if not any(beats(other, row) for other in rows)]
    return sorted(front, key=lambda row: row["size"])


if __name__ == "__main__":
    scheduler = MultiObjectiveASHAScheduler(
        metrics=["loss", "size"], modes=["min", "min"], max_t=9, reduction_factor=3
    )
    found = curve.main(__doc__, make_search, SPACE, train=train_fn, scheduler=scheduler)
    for row in pareto_front(found):
        print(f"{row['size']} waves: loss {row['loss']:.4g}")
