"""Log a training of two workers to W&B.

    python examples/tracking/torch_exp_tracking_wandb.py --storage /tmp/results
    wandb sync /tmp/results/torch-wandb/TorchTrainer_*/wandb/latest-run

Kill this script, or one of its workers, at any moment and start it again: the training resumes,
and so does the tracker's run, whose id is the trial's.
"""

from __future__ import annotations

from typing import Any

import launch
import task
import wandb

import holdfast
from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    context = train.get_context()
    training = task.Training(lr=0.01, batch_size=32)
    run = None
    if context.get_world_rank() == 0:
        # The working directory is the trial's, in the storage: W&B's files are there, too.
        run = wandb.init(
            project="torch-wandb", id=context.get_trial_id(), resume="allow", config=config
        )
        run.watch(training.model, log_freq=1)
        # A kill loses the rows that W&B has not written yet: this attempt logs them again.
        for metrics in training.history[run.step :]:
            run.log(metrics, step=metrics["epoch"])

    for epoch in range(training.first_epoch, config["num_epochs"]):
        loss = training.optimize(epoch)
        metrics = {"epoch": epoch, "loss": loss}
        # Log before the report: a reported epoch does not run again, so it must be logged.
        if run is not None:
            run.log(metrics, step=epoch)
        training.report(metrics)

    if run is not None:
        run.finish()


def main() -> None:
    given = launch.parser(__doc__, name="torch-wandb").parse_args()
    # Offline, into files. With a key: {"WANDB_API_KEY": ...} instead.
    holdfast.init(runtime_env={"env_vars": {"WANDB_MODE": "offline"}})
    launch.fit(train_func, given)


if __name__ == "__main__":
    main()
