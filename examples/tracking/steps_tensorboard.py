"""The steps with TensorBoard: three, because there is nothing to connect to.

python examples/tracking/steps_tensorboard.py --storage /tmp/results
tensorboard --logdir /tmp/results/steps-tensorboard
"""

from __future__ import annotations

from typing import Any

import launch
import task
from torch.utils.tensorboard import SummaryWriter

from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    training = task.Training()
    writer = None
    if train.get_context().get_world_rank() == 0:
        # In the trial's directory. Later values of an attempt that died are hidden.
        writer = SummaryWriter("tensorboard", purge_step=training.first_epoch)

    for epoch in range(training.first_epoch, config["num_epochs"]):
        loss = training.optimize(epoch)
        if writer is not None:
            writer.add_scalar("loss", loss, epoch)
            writer.flush()
        training.report({"epoch": epoch, "loss": loss})

    if writer is not None:
        writer.close()


def main() -> None:
    launch.fit(train_func, launch.parser(__doc__, name="steps-tensorboard").parse_args())


if __name__ == "__main__":
    main()
