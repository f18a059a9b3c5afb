"""The four steps with Comet: connect, start the run, log, end the run.

python examples/tracking/steps_comet.py --storage /tmp/results
comet upload /tmp/results/steps-comet/TorchTrainer_*/comet/*.zip
"""

from __future__ import annotations

from typing import Any

import comet_ml  # before torch, as Comet asks
import launch
import task
from runs import comet_key

from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    experiment = None
    if train.get_context().get_world_rank() == 0:
        # Steps 1 and 2: offline, into the trial's directory. Online: COMET_API_KEY in env_vars.
        experiment = comet_ml.start(
            online=False,
            experiment_key=comet_key(train.get_context().get_trial_id()),
            mode="get_or_create",
            project_name="my-project",
            experiment_config=comet_ml.ExperimentConfig(offline_directory="comet"),
        )

    training = task.Training()
    # Offline, Comet makes its archive at the end, and none after a kill. This attempt logs the
    # earlier values again, so its archive has everything.
    if experiment is not None:
        for metrics in training.history:
            experiment.log_metrics(metrics, step=metrics["epoch"])

    for epoch in range(training.first_epoch, config["num_epochs"]):
        loss = training.optimize(epoch)
        metrics = {"epoch": epoch, "loss": loss}
        if experiment is not None:
            experiment.log_metrics(metrics, step=epoch)  # step 3
        training.report(metrics)

    if experiment is not None:
        experiment.end()  # step 4


def main() -> None:
    launch.fit(train_func, launch.parser(__doc__, name="steps-comet").parse_args())


if __name__ == "__main__":
    main()
