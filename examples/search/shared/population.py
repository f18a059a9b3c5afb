"""Shared by the examples whose trials resume from checkpoints: a small model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from holdfast import tune

EPOCHS = 12


def train_fn(config: dict[str, Any]) -> None:
    """Fit a line by gradient descent with momentum, a checkpoint in each epoch."""
    inputs = np.linspace(-1, 1, 200)
    wanted = 2 * inputs - 1
    line, speed, first = np.zeros(2), np.zeros(2), 1
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = np.load(Path(folder, "state.npz"))
            line, speed, first = saved["line"], saved["speed"], int(saved["epoch"]) + 1
    for epoch in range(first, EPOCHS + 1):
        error = line[0] * inputs + line[1] - wanted
        speed = config["momentum"] * speed - config["lr"] * np.array(
            [np.mean(error * inputs), np.mean(error)]
        )
        line = line + speed
        Path("model").mkdir(exist_ok=True)
        np.savez(Path("model", "state.npz"), line=line, speed=speed, epoch=epoch)
        loss = float(np.mean((line[0] * inputs + line[1] - wanted) ** 2))
        tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory("model"))
