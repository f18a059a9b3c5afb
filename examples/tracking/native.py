"""The pattern of every tracker in a training function: only rank 0 logs.

    python examples/tracking/native.py --storage /tmp/results

The tracker of this example is a plain file, so it needs no library.
"""

from __future__ import annotations

import json
from typing import Any

import launch
import task

from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    training = task.Training()
    for epoch in range(training.first_epoch, config["num_epochs"]):
        loss = training.optimize(epoch)
        metrics = {"epoch": epoch, "loss": loss}
        if train.get_context().get_world_rank() == 0:
            # Log, only in rank 0.
            with open("logged.jsonl", "a") as log:
                log.write(json.dumps(metrics) + "\n")
        training.report(metrics)


def main() -> None:
    launch.fit(train_func, launch.parser(__doc__, name="native").parse_args())


if __name__ == "__main__":
    main()
