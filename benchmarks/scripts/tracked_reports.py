"""Reports beside trackers: `tracked_reports.py STORAGE TRACKERS RATE COUNT OUT`.

TRACKERS is JSON: a list of `[module, class, keyword arguments]`. The trial reports COUNT times,
RATE times a second; OUT gets the seconds that each report took, and the largest memory of a
courier.
"""

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from holdfast import tune

storage, trackers, rate, count, out = sys.argv[1:]


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})
    taken, due_s = [], time.perf_counter()
    for step in range(config["count"]):
        due_s += 1 / config["rate"]
        time.sleep(max(0.0, due_s - time.perf_counter()))
        began_s = time.perf_counter()
        tune.report({"loss": 1.0 / (step + 2), "accuracy": step / config["count"]})
        taken.append(time.perf_counter() - began_s)
    told = {"taken": taken, "courier_kib": courier_kib(config["script"])}
    Path(config["out"]).write_text(json.dumps(told))


def courier_kib(script: int) -> int:
    """The most that a courier of the script has held in memory; 0 without one."""
    most = 0
    for process in psutil.Process(script).children(recursive=True):
        if "courier_process:main" in " ".join(process.cmdline()):
            status = Path(f"/proc/{process.pid}/status").read_text()
            most = max(most, int(status.partition("VmHWM:")[2].split()[0]))
    return most


if __name__ == "__main__":
    callbacks = [
        getattr(import_module(module), name)(**given)
        for module, name, given in json.loads(trackers)
    ]
    space = {"rate": float(rate), "count": int(count), "out": out, "script": os.getpid()}
    run_config = tune.RunConfig(storage_path=storage, name="run", verbose=0, callbacks=callbacks)
    tune.Tuner(train, param_space=space, run_config=run_config).fit()
