"""One trial with one report: `one_trial.py LIBRARY STORAGE OUT`.

Writes the monotonic time at which `report` has returned to OUT.
"""

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

library, storage, out = sys.argv[1:]
tune: Any = import_module(f"{library}.tune")


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 0.5})
    Path(config["out"]).write_text(repr(time.monotonic()))


if __name__ == "__main__":
    tune.Tuner(
        train,
        param_space={"lr": tune.uniform(0, 1), "out": out},
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()
