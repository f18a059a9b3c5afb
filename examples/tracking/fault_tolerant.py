"""One run in the tracker over all restarts: its id is the trial's.

python examples/tracking/fault_tolerant.py
"""

from __future__ import annotations

import os
from typing import Any

import launch
import task
import wandb

import holdfast
from holdfast import train
from holdfast.train import FailureConfig, RunConfig, ScalingConfig
from holdfast.train.torch import TorchTrainer


def train_func(config: dict[str, Any]) -> None:
    context = train.get_context()
    if context.get_world_rank() == 0:
        wandb.init(id=context.get_trial_id(), resume="allow")
    training = task.Training()
    if context.get_world_rank() == 0:
        # A kill loses the rows that W&B has not written yet: this attempt logs them again.
        for metrics in training.history[wandb.run.step :]:
            wandb.log(metrics, step=metrics["epoch"])
    for epoch in range(training.first_epoch, config["num_epochs"]):
        loss = training.optimize(epoch)
        metrics = {"epoch": epoch, "loss": loss}
        if context.get_world_rank() == 0:
            wandb.log(metrics, step=epoch)
        training.report(metrics)
    if context.get_world_rank() == 0:
        wandb.finish()


def main() -> None:
    given = launch.parser(__doc__, name="fault-tolerant").parse_args()
    holdfast.init(runtime_env={"env_vars": {"WANDB_MODE": "offline"}})
    path = os.path.join(given.storage, given.name)
    if TorchTrainer.can_restore(path):
        # The same trial and the same id, whatever ended the script.
        print(f"Resuming {given.name} ...")
        trainer = TorchTrainer.restore(path, train_func)
    else:
        trainer = TorchTrainer(
            train_func,
            train_loop_config={"num_epochs": given.epochs},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                storage_path=given.storage,
                name=given.name,
                failure_config=FailureConfig(max_failures=3),
            ),
        )
    trainer.fit()


if __name__ == "__main__":
    main()
