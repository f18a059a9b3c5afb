"""Reports of a run with trackers: `tracked_reports.py STORAGE TRACKERS RATE COUNT OUT`.

TRACKERS is JSON: a list of `[module, class, keyword arguments]`. The trial waits until every
tracker process has begun to call its tracker. Then it reports COUNT times, RATE times a second (0:
as fast as it can). Writes to OUT the seconds of each report, how long the tracker processes took
to begin, how long `fit()` took after the last report, and the largest memory of a tracker process.
"""

import json
import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from holdfast import tune

_BEGUN_S = 120.0
storage, trackers, rate, count, out = sys.argv[1:]


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})
    began_s = time.monotonic()
    wait_for_tracker_processes(config)
    begun_s = time.monotonic()
    taken, due_s = [], time.perf_counter()
    for step in range(config["count"]):
        if config["rate"]:
            due_s += 1 / config["rate"]
            time.sleep(max(0.0, due_s - time.perf_counter()))
        at_s = time.perf_counter()
        tune.report({"loss": 1.0 / (step + 2), "accuracy": step / config["count"]})
        taken.append(time.perf_counter() - at_s)
    told = {
        "taken": taken,
        "starting_s": begun_s - began_s,
        "begun_s": begun_s,
        "ended_s": time.monotonic(),
        "tracker_process_kib": max(
            (peak_kib(pid) for pid in tracker_processes(config["script"])), default=0
        ),
    }
    Path(config["out"]).write_text(json.dumps(told))


def tracker_processes(script: int) -> list[int]:
    found = []
    for one in psutil.Process(script).children(recursive=True):
        with suppress(psutil.Error):  # others come and go
            if " ".join(one.cmdline()).startswith("holdfast: tracker"):
                found.append(one.pid)
    return found


def wait_for_tracker_processes(config: dict[str, Any]) -> None:
    """Wait until each has an answer of its tracker, or waits for one on a connection.

    So the first seconds, in which libraries are imported, are not measured.
    """
    by_s = time.monotonic() + _BEGUN_S
    expected, root = config["trackers"], Path(config["root"])
    while True:
        answered = len(list(root.glob("tracker-*.json")))
        connected = sum(
            any(one.status == psutil.CONN_ESTABLISHED for one in _connections(pid))
            for pid in tracker_processes(config["script"])
        )
        if answered + connected >= expected:
            return
        if time.monotonic() > by_s:
            raise TimeoutError(
                f"of {expected} tracker processes {answered + connected} have begun"
            )
        time.sleep(0.1)


def _connections(pid: int) -> list[Any]:
    try:
        return [one for one in psutil.Process(pid).net_connections("tcp") if one.raddr]
    except psutil.Error:  # a process that it has just forked looks like it at first
        return []


def peak_kib(pid: int) -> int:
    """The most that a process has held in memory."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError):  # it has just ended
        return 0


if __name__ == "__main__":
    callbacks = [
        getattr(import_module(module), name)(**given)
        for module, name, given in json.loads(trackers)
    ]
    space = {
        "rate": float(rate),
        "count": int(count),
        "out": out,
        "script": os.getpid(),
        "root": f"{storage}/run",
        "trackers": len(callbacks),
    }
    run_config = tune.RunConfig(storage_path=storage, name="run", verbose=0, callbacks=callbacks)
    tune.Tuner(train, param_space=space, run_config=run_config).fit()
    told = json.loads(Path(out).read_text())
    told["ending_s"] = time.monotonic() - told["ended_s"]
    Path(out).write_text(json.dumps(told))
