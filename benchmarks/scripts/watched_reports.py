"""Resumes a large experiment whose trials report at a fixed rate until a file appears.

`watched_reports.py EXPERIMENT RATE OUT`: each running trial reports RATE times a second until the
file OUT/end exists, and then writes when its reports began (on the monotonic clock) and how long
each took, in seconds.
"""

import os
import sys
import time
from array import array
from pathlib import Path
from typing import Any

import holdfast
from benchmarks.page.search import SPACE
from holdfast import tune

_LOOKS_EVERY = 50


def train(config: dict[str, Any]) -> None:
    rate, out = float(os.environ["RATE"]), Path(os.environ["OUT"])
    taken, due_s, step = array("d"), time.monotonic(), 0
    while step % _LOOKS_EVERY or not (out / "end").exists():
        step += 1
        due_s = max(due_s + 1 / rate, time.monotonic() - 1.0)
        time.sleep(max(0.0, due_s - time.monotonic()))
        began_s = time.monotonic()
        tune.report({"loss": 1.0 / step, "acc": 1 - 1.0 / step, "grad_norm": 0.25})
        taken.extend((began_s, time.monotonic() - began_s))
    (out / f"{os.getpid()}.taken").write_bytes(taken.tobytes())


if __name__ == "__main__":
    experiment, rate, out = sys.argv[1:]
    os.environ |= {"RATE": rate, "OUT": out}
    holdfast.init(num_cpus=1_000)  # all of them at once, whatever this machine has
    tune.Tuner.restore(experiment, train, param_space=dict(SPACE)).fit()
