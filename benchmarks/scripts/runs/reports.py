"""Trials that report as fast as they get answers: `reports.py LIBRARY STORAGE TRIALS COUNT OUT`.

Each writes the monotonic times before and after its COUNT reports to the folder OUT.
"""

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

library, storage, trials, count, out = sys.argv[1:]
tune: Any = import_module(f"{library}.tune")
WARM = 20


def train(config: dict[str, Any]) -> None:
    for step in range(WARM):
        tune.report({"loss": 0.5 * step, "acc": 0.25})
    began_s = time.monotonic()
    for step in range(config["count"]):
        tune.report({"loss": 0.5 * step, "acc": 0.25})
    span = [began_s, time.monotonic()]
    Path(config["out"], tune.get_context().get_trial_id()).write_text(json.dumps(span))


if __name__ == "__main__":
    tune.Tuner(
        train,
        param_space={"count": int(count), "out": out},
        tune_config=tune.TuneConfig(num_samples=int(trials)),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()
