"""Log a Lightning training of two workers to W&B, with Lightning's own WandbLogger.

python examples/tracking/lightning_exp_tracking_wandb.py --storage /tmp/results
wandb sync /tmp/results/lightning-wandb/TorchTrainer_*/wandb/latest-run
"""

from __future__ import annotations

from typing import Any

import launch
import wandb
from lightning.pytorch.loggers import WandbLogger
from lightning_exp_tracking_model_dl import LogAgain, train_with

import holdfast
from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    context = train.get_context()
    logger = None
    if context.get_world_rank() == 0:
        # One run: the same id in each attempt. The working directory is the trial's.
        logger = WandbLogger(
            name="demo-run",
            project="demo-project",
            id=context.get_trial_id(),
            save_dir=".",
            resume="allow",
        )
    train_with(logger, config["num_epochs"], [LogAgain(logger)])
    if context.get_world_rank() == 0:
        wandb.finish()


def main() -> None:
    given = launch.parser(__doc__, name="lightning-wandb").parse_args()
    # Offline, into files. With a key: {"WANDB_API_KEY": ...} instead.
    holdfast.init(runtime_env={"env_vars": {"WANDB_MODE": "offline"}})
    launch.fit(train_func, given)


if __name__ == "__main__":
    main()
