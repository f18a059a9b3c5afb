"""PASHA: trials train longer only while their ranking still changes.

    python examples/search/pasha.py --storage /tmp/results --name pasha --samples 50

Trials pause at 1, 3, 9 ... epochs and continue if they are among the best there. As long as their
ranking does not change, no trial trains beyond the second rung. The result is the best
configuration: train that to the end afterwards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from shared import curve

from holdfast import tune
from holdfast.tune.schedulers import PASHAScheduler
from holdfast.tune.search import BasicVariantGenerator

SPACE = {"lr": tune.loguniform(1e-3, 3), "momentum": tune.uniform(0, 0.99)}
INPUTS = np.linspace(-1, 1, 200)


class Line(tune.Trainable):
    """Fits a line by gradient descent with momentum."""

    def setup(self, config: dict[str, Any]) -> None:
        self.line, self.speed = np.zeros(2), np.zeros(2)

    def step(self) -> dict[str, Any]:
        error = self.error()
        slope = np.array([np.mean(error * INPUTS), np.mean(error)])
        self.speed = self.config["momentum"] * self.speed - self.config["lr"] * slope
        self.line = self.line + self.speed
        return {"loss": float(np.mean(self.error() ** 2))}

    def error(self) -> Any:
        return self.line[0] * INPUTS + self.line[1] - (2 * INPUTS - 1)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        np.savez(Path(checkpoint_dir, "state.npz"), line=self.line, speed=self.speed)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        saved = np.load(Path(checkpoint_dir, "state.npz"))
        self.line, self.speed = saved["line"], saved["speed"]


def make_search() -> BasicVariantGenerator:
    return BasicVariantGenerator(random_state=7)


if __name__ == "__main__":
    scheduler = PASHAScheduler(max_t=81)
    results = curve.main(__doc__, make_search, SPACE, train=Line, scheduler=scheduler)
    furthest = max((result.metrics or {})["training_iteration"] for result in results)
    print(f"nobody was trained for more than {furthest} epochs")
