"""Trials that get more CPUs when others have ended, under ASHA.

    python examples/search/resources.py --storage /tmp/results --name resources --samples 8

A trial starts with one CPU. Trials that end leave their CPUs to the others: a trial that has just
reported a checkpoint starts again from there with more of them, and reads how many it has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from shared import curve

from holdfast import tune
from holdfast.tune.schedulers import (
    ASHAScheduler,
    DistributeResources,
    ResourceChangingScheduler,
)
from holdfast.tune.search import BasicVariantGenerator

SPACE = {"lr": tune.loguniform(1e-3, 3)}


def train_fn(config: dict[str, Any]) -> None:
    """Fit a line by gradient descent, with as many threads as there are CPUs."""
    threads = int(tune.get_context().get_trial_resources().required_resources["CPU"])
    inputs = np.linspace(-1, 1, 1_000_000)
    wanted = 2 * inputs - 1
    line, first = np.zeros(2), 1
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = np.load(Path(folder, "state.npz"))
            line, first = saved["line"], int(saved["epoch"]) + 1
    for epoch in range(first, 10):
        error = line[0] * inputs + line[1] - wanted
        line = line - config["lr"] * np.array([np.mean(error * inputs), np.mean(error)])
        Path("model").mkdir(exist_ok=True)
        np.savez(Path("model", "state.npz"), line=line, epoch=epoch)
        loss = float(np.mean((line[0] * inputs + line[1] - wanted) ** 2))
        tune.report(
            {"loss": loss, "threads": threads},
            checkpoint=tune.Checkpoint.from_directory("model"),
        )


def make_search() -> BasicVariantGenerator:
    # The last of these 8, and of these 20, is a good one: it continues when the others have ended.
    return BasicVariantGenerator(random_state=87)


if __name__ == "__main__":
    scheduler = ResourceChangingScheduler(
        ASHAScheduler(max_t=9, reduction_factor=3), DistributeResources()
    )
    results = curve.main(__doc__, make_search, SPACE, train=train_fn, scheduler=scheduler)
    most = max((result.metrics or {})["threads"] for result in results)
    print(f"the most threads that a trial was trained with: {most}")
