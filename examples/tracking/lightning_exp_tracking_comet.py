"""Log a Lightning training of two workers to Comet, with Lightning's own CometLogger.

python examples/tracking/lightning_exp_tracking_comet.py --storage /tmp/results
comet upload /tmp/results/lightning-comet/TorchTrainer_*/comet/*.zip
"""

from __future__ import annotations

from typing import Any

import launch
from lightning.pytorch.loggers import CometLogger
from lightning_exp_tracking_model_dl import LogAgain, train_with
from runs import comet_key

import holdfast
from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    context = train.get_context()
    logger = None
    if context.get_world_rank() == 0:
        logger = CometLogger(
            experiment_key=comet_key(context.get_trial_id()),
            mode="get_or_create",
            project="demo-project",
            name="demo-run",
            offline_directory="comet",  # in the trial's directory
        )
    train_with(logger, config["num_epochs"], [LogAgain(logger)])
    if logger is not None:
        logger.experiment.end()


def main() -> None:
    given = launch.parser(__doc__, name="lightning-comet").parse_args()
    # Offline. CometLogger(online=False) of Lightning 2.6 would log nothing: it disables what it
    # starts. Online: {"COMET_API_KEY": ...} instead.
    holdfast.init(runtime_env={"env_vars": {"COMET_START_ONLINE": "false"}})
    launch.fit(train_func, given)


if __name__ == "__main__":
    main()
