"""A script of a user with trackers: it starts an experiment or resumes it.

The options are one JSON object on the command line. `trackers` are callbacks, each as `[module,
class, keyword arguments]`. Each epoch marks its progress and waits at a gate with its name. A
trial saves in every second epoch; it kills itself before the epochs in `dies`, once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast import tune
from tests.rig.epochs import resumed, saved
from tests.rig.script import mark, wait_at

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


def make_trainable(options: dict[str, Any]) -> Any:
    def train(config: dict[str, Any]) -> None:
        context = tune.get_context()
        index, attempt = int(context.get_trial_id().rpartition("_")[2]), context.get_attempt()
        for epoch in range(resumed() + 1, options["epochs"] + 1):
            mark("at", index, epoch)
            wait_at(f"{index}-{epoch}")
            if epoch in options.get("dies", []) and attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            row = {"loss": config["lr"] / epoch, **options.get("more", {})}
            if epoch % 2:
                tune.report(row)
                continue
            tune.report(row, checkpoint=saved(epoch))
            mark("reported", index, epoch)

    return train


def make_callback(module: str, name: str, arguments: dict[str, Any]) -> Any:
    return getattr(import_module(module), name)(**arguments)


def main() -> None:
    train = make_trainable(OPTIONS)
    if "restore" in OPTIONS:
        path = str(Path(OPTIONS["storage"], "run"))
        tuner = tune.Tuner.restore(path, train, resume_errored=True)
    else:
        tuner = tune.Tuner(
            train,
            param_space={"lr": tune.grid_search(OPTIONS.get("lrs", [0.5, 0.25]))},
            run_config=tune.RunConfig(
                storage_path=OPTIONS["storage"],
                name="run",
                callbacks=[make_callback(*one) for one in OPTIONS["trackers"]],
                failure_config=tune.FailureConfig(max_failures=OPTIONS.get("max_failures", 1)),
            ),
        )
    tuner.fit()


if __name__ == "__main__":
    main()
