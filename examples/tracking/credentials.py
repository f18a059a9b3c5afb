"""Give credentials to every worker, and to no file.

python examples/tracking/credentials.py --storage /tmp/results
"""

from __future__ import annotations

import os
from typing import Any

import launch
import task

import holdfast


def train_func(config: dict[str, Any]) -> None:
    training = task.Training()
    key = os.environ["SOME_API_KEY"]  # where your tracker looks for it, in each worker
    for epoch in range(training.first_epoch, config["num_epochs"]):
        loss = training.optimize(epoch)
        training.report({"epoch": epoch, "loss": loss, "key_length": len(key)})


def main() -> None:
    parser = launch.parser(__doc__, name="credentials")
    parser.add_argument("--key", default="your_api_key")
    given = parser.parse_args()
    holdfast.init(runtime_env={"env_vars": {"SOME_API_KEY": given.key}})
    launch.fit(train_func, given)


if __name__ == "__main__":
    main()
