"""Trials of gradient descent that end when they no longer improve.

    python examples/extending/stoppers.py --storage /tmp/experiments

After a kill, start it again and it resumes: the stoppers see all reports again.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from holdfast import tune
from holdfast.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)


def descend(config: dict[str, Any]) -> None:
    """Find the least value of a slope with a kink, from a start that the config gives."""
    x = float(config["start"])
    while True:
        slope = 2 * (x - 3) + 0.5 * math.cos(x)
        x -= float(config["lr"]) * slope
        tune.report({"loss": (x - 3) ** 2 + 0.5 * math.sin(x), "x": x})


def has_left(trial_id: str, result: dict[str, Any]) -> bool:
    """Stop a trial whose steps are so long that it diverges."""
    return abs(result["x"]) > 100


def bounds(seconds: float) -> Stopper:
    """The stoppers that can end the run early."""
    return CombinedStopper(
        MaximumIterationStopper(100),
        FunctionStopper(has_left),
        # A trial ends when its last five losses are the same to three digits ...
        TrialPlateauStopper("loss", std=1e-3, num_results=5, grace_period=5),
        # ... the run ends when the twenty best losses are the same ...
        ExperimentPlateauStopper("loss", std=1e-5, top=20, patience=3),
        # ... or after a time limit, which does not count the gap before a restart.
        TimeoutStopper(seconds) if seconds else NoopStopper(),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", required=True)
    parser.add_argument("--name", default="stoppers", help="resume it if it exists")
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=600, help="0: without a limit")
    options = parser.parse_args(arguments)
    tuner = tune.Tuner(
        descend,
        param_space={"lr": tune.loguniform(1e-3, 0.5), "start": tune.uniform(-10, 10)},
        tune_config=tune.TuneConfig(num_samples=options.samples, metric="loss", mode="min"),
        run_config=tune.RunConfig(
            name=options.name,
            storage_path=options.storage,
            stop=bounds(options.seconds),
            verbose=0,
        ),
    )
    results = tuner.fit(resume="auto")
    for result in results:
        row = result.metrics or {}
        print(f"{row['training_iteration']:3} iterations, loss {row['loss']:.6f}")
    best = results.get_best_result().metrics or {}
    print(f"best: x={best['x']:.4f} loss={best['loss']:.6f}")


if __name__ == "__main__":
    main()
