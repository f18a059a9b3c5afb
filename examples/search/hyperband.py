"""HyperBand: many trials begin, and those that are worth it go on from their checkpoints.

    python examples/search/hyperband.py --storage /tmp/results --name hyperband --samples 22

With max_t=9 a round has brackets of 9, 5 and 3 trials. Kill the script in the middle and start it
again: trials that were paused still are, and the same ones go on.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import curve
import numpy as np

from holdfast import tune
from holdfast.tune.schedulers import HyperBandScheduler
from holdfast.tune.search import BasicVariantGenerator

SPACE = {"lr": tune.loguniform(1e-3, 3), "momentum": tune.uniform(0, 0.99)}


def train_fn(config: dict[str, Any]) -> None:
    """Fit a line by gradient descent with momentum, for as long as the scheduler lets it."""
    inputs = np.linspace(-1, 1, 200)
    wanted = 2 * inputs - 1
    line, speed, first = np.zeros(2), np.zeros(2), 1
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = np.load(Path(folder, "state.npz"))
            line, speed, first = saved["line"], saved["speed"], int(saved["epoch"]) + 1
    for epoch in itertools.count(first):
        error = line[0] * inputs + line[1] - wanted
        speed = config["momentum"] * speed - config["lr"] * np.array(
            [np.mean(error * inputs), np.mean(error)]
        )
        line = line + speed
        Path("model").mkdir(exist_ok=True)
        np.savez(Path("model", "state.npz"), line=line, speed=speed, epoch=epoch)
        loss = float(np.mean((line[0] * inputs + line[1] - wanted) ** 2))
        tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory("model"))


def make_search() -> BasicVariantGenerator:
    return BasicVariantGenerator(random_state=7)


if __name__ == "__main__":
    scheduler = HyperBandScheduler(max_t=9, reduction_factor=3)
    curve.main(__doc__, make_search, SPACE, train=train_fn, scheduler=scheduler)
