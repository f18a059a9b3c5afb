"""Shared by the examples of search: a small model, and the start of a run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from holdfast import tune

SPACE = {
    "lr": tune.loguniform(1e-3, 3),
    "momentum": tune.uniform(0, 0.99),
    "features": tune.randint(2, 40),
}


def train_fn(config: dict[str, Any]) -> None:
    """Fit a curve as a sum of random waves, by gradient descent with momentum."""
    # With Repeater, each trial of a config has its own waves.
    rng = np.random.default_rng(config.get("__trial_index__", 0))
    inputs = np.linspace(-1, 1, 200)
    wanted = np.sin(5 * inputs) + 0.3 * inputs
    pitch, shift = rng.normal(0, 4, config["features"]), rng.uniform(0, 6, config["features"])
    waves = np.cos(np.outer(inputs, pitch) + shift)
    weights, speed = np.zeros(config["features"]), np.zeros(config["features"])
    for _ in range(config.get("epochs", 5)):
        for _ in range(20):
            error = waves @ weights - wanted
            speed = config["momentum"] * speed - config["lr"] * waves.T @ error / len(inputs)
            weights += speed
        loss = float(np.mean((waves @ weights - wanted) ** 2))
        tune.report({"loss": min(loss, 1e6)})


def main(
    description: str | None,
    make_search: Callable[[], Any],
    space: Mapping[str, Any] | None = None,
    arguments: Sequence[str] | None = None,
    train: Callable[[dict[str, Any]], None] | None = None,
    **more: Any,
) -> tune.ResultGrid:
    """Start a search, or resume the one with this name; `more` goes to the TuneConfig."""
    train = train or train_fn
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="search", help="resume it if it exists")
    parser.add_argument("--samples", type=int, default=20)
    given = parser.parse_args(arguments)

    if tune.Tuner.can_restore(os.path.join(given.storage, given.name)):
        print(f"Resuming {given.name} ...")
    goal = {"metric": "loss", "mode": "min", "num_samples": given.samples}
    tuner = tune.Tuner(
        train,
        param_space=SPACE if space is None else space,
        tune_config=tune.TuneConfig(search_alg=make_search(), **{**goal, **more}),
        run_config=tune.RunConfig(storage_path=given.storage, name=given.name),
    )
    results = tuner.fit(resume="auto", extend=True)
    best = results.get_best_result("loss", "min")
    print(f"{len(results)} trials, the best loss is {(best.metrics or {})['loss']:.4g}")
    print(f"with {best.config}")
    return results
