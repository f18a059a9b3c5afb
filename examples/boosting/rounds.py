"""Shared by the two examples of boosting: the data, and the start of a training."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast import train


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Points, and whether they are in a ring."""
    points = np.random.default_rng(0).uniform(-1, 1, size=(2_000, 2))
    radius = np.hypot(points[:, 0], points[:, 1])
    return points, ((radius > 0.4) & (radius < 0.8)).astype(float)


def main(
    description: str, trainer_type: Any, train_func: Callable[[dict[str, Any]], None]
) -> None:
    """Start a training, or resume the one with this name."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="rounds", help="resume it if it exists")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()

    path = os.path.join(given.storage, given.name)
    if trainer_type.can_restore(path):
        print(f"Resuming {given.name} ...")
        trainer = trainer_type.restore(path, train_func)
    else:
        trainer = trainer_type(
            train_func,
            train_loop_config={"max_depth": 3, "rounds": given.rounds},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(
                storage_path=given.storage,
                name=given.name,
                checkpoint_config=train.CheckpointConfig(num_to_keep=2),
                failure_config=train.FailureConfig(max_failures=1),
            ),
        )
    result = trainer.fit()
    print(f"{result.metrics['training_iteration']} rounds, loss {result.metrics['loss']:.4f}")
    print(f"The model is in {result.checkpoint.path}")
