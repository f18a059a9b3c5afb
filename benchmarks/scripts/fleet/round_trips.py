"""The reports of one trial, each timed: `round_trips.py STORAGE COUNT OUT`.

Writes the seconds of a median report to the file OUT: what else runs on the machine disturbs the
slowest reports.
"""

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from holdfast import tune

WARM = 100


def train(config: dict[str, Any]) -> None:
    spans = []
    for step in range(WARM + config["count"]):
        began_s = time.perf_counter()
        tune.report({"loss": 0.5 * step, "acc": 0.25})
        spans.append(time.perf_counter() - began_s)
    Path(config["out"]).write_text(json.dumps(median(spans[WARM:])))


if __name__ == "__main__":
    storage, count, out = sys.argv[1:]
    tune.Tuner(
        train,
        param_space={"count": int(count), "out": out},
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()
