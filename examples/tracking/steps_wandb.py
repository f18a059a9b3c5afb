"""The four steps with W&B: connect, start the run, log, end the run.

    python examples/tracking/steps_wandb.py offline --storage /tmp/results
    python examples/tracking/steps_wandb.py online --storage /tmp/results --key $WANDB_API_KEY
    python examples/tracking/steps_wandb.py login --storage /tmp/results --key $WANDB_API_KEY

The key is in the environment of each worker and in no file of the experiment. `login` calls
`wandb.login(key=...)` in the worker. W&B verifies the key online and keeps it in ~/.netrc.
"""

from __future__ import annotations

import os
from typing import Any

import launch
import task
import wandb

import holdfast
from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    is_first = train.get_context().get_world_rank() == 0

    # Step 1: connect. Online, with the key in the environment, there is nothing to do.
    if is_first and config["mode"] == "login":
        # The same as os.environ["WANDB_API_KEY"] = key.
        wandb.login(key=os.environ["MY_KEY"])
    if is_first and config["mode"] == "offline":
        os.environ["WANDB_MODE"] = "offline"

    # Step 2: configure and start the run, or resume it after a failure.
    if is_first:
        wandb.init(
            name="first-steps",
            project="my-project",
            id=train.get_context().get_trial_id(),
            resume="allow",
            dir=config["dir"],  # a directory that all machines can write to
        )

    training = task.Training()
    for epoch in range(training.first_epoch, config["num_epochs"]):
        loss = training.optimize(epoch)
        metrics = {"epoch": epoch, "loss": loss}

        # Step 3: log.
        if is_first:
            wandb.log(metrics, step=epoch)
        training.report(metrics)

    # Step 4: end the run, when all has been sent.
    if is_first:
        wandb.finish()


def main() -> None:
    parser = launch.parser(__doc__, name="steps-wandb")
    parser.add_argument("mode", choices=["offline", "online", "login"])
    parser.add_argument("--key", default="", help="of your account at W&B")
    given = parser.parse_args()
    name = "MY_KEY" if given.mode == "login" else "WANDB_API_KEY"
    holdfast.init(runtime_env={"env_vars": {name: given.key} if given.key else {}})
    directory = os.path.join(os.path.abspath(given.storage), "wandb")
    os.makedirs(directory, exist_ok=True)
    launch.fit(train_func, given, mode=given.mode, dir=directory)


if __name__ == "__main__":
    main()
