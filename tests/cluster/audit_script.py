"""A user's script that notes what its own process unpickles while its trials run on nodes.

Python's audit event `pickle.find_class` is raised for each class or function that a pickle names;
without one, a pickle holds plain values only.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from holdfast import tune
from tests.rig.script import mark

SCRIPT = os.getpid()
running = threading.Event()


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class" and running.is_set() and os.getpid() == SCRIPT:
        mark("unpickled", *arguments)


class Watch(tune.Callback):
    """Counts from the first trial to the last."""

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        running.set()

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        running.clear()


class Shell:
    """Unpickling one runs a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("exit 1",)


def train(config: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "weights").write_text("light")
        tune.report({"loss": 1.0}, checkpoint=tune.Checkpoint.from_directory(folder))
    print("a line")
    if config["number"] == 1:
        raise ValueError(Shell(), "an error whose parts no pickle should bring here")


if __name__ == "__main__":
    sys.addaudithook(audit)
    tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"number": tune.grid_search([0, 1, 2])},
        run_config=tune.RunConfig(
            storage_path=sys.argv[1],
            name="run",
            callbacks=[Watch()],
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    ).fit()
    running.set()
    import pickle

    pickle.loads(pickle.dumps(Path("the hook works")))
    running.clear()
