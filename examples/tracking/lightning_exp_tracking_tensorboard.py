"""Log a Lightning training of two workers to TensorBoard, with Lightning's TensorBoardLogger.

python examples/tracking/lightning_exp_tracking_tensorboard.py --storage /tmp/results
tensorboard --logdir /tmp/results/lightning-tensorboard
"""

from __future__ import annotations

from typing import Any

import launch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning_exp_tracking_model_dl import train_with

from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    logger = None
    if train.get_context().get_world_rank() == 0:
        # One run: in the trial's directory, without a new version for each attempt.
        logger = TensorBoardLogger(save_dir=".", name="demo-run", version="")
    train_with(logger, config["num_epochs"])


def main() -> None:
    given = launch.parser(__doc__, name="lightning-tensorboard").parse_args()
    launch.fit(train_func, given)


if __name__ == "__main__":
    main()
