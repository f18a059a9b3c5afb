"""Trials that report as fast as they get answers: `sustained.py STORAGE TRIALS SECONDS`.

Prints the rows that are in the result files at the end, the seconds from the first report until
they are complete, and the CPU seconds of the controller and of the projector in that time.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

import holdfast
from holdfast import tune

storage, trials, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
BEGAN = Path(storage, "began")
_LOOK_S = 0.1


def train(config: dict[str, Any]) -> None:
    step = 0
    tune.report({"loss": 0.0, "acc": 0.25})
    BEGAN.touch()
    until_s = time.monotonic() + config["seconds"]
    while time.monotonic() < until_s:
        step += 1
        tune.report({"loss": 0.5 * step, "acc": 0.25})


class Measured:
    """From the first report on: the time, and the CPU of this process and the projector's.

    A callback would know the first report, and would cost more than a tenth of what is measured.
    """

    def __init__(self) -> None:
        self.began_s = self.cpu_s = self.projector_s = 0.0
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        while not BEGAN.exists():
            time.sleep(_LOOK_S)
        self.began_s, self.cpu_s = time.monotonic(), time.process_time()
        (projector,) = filter(_is_projector, psutil.Process().children())
        before_s = sum(projector.cpu_times()[:2])
        while True:
            try:
                self.projector_s = sum(projector.cpu_times()[:2]) - before_s
            except psutil.NoSuchProcess:
                return
            time.sleep(_LOOK_S)


def _is_projector(process: psutil.Process) -> bool:
    try:
        return "projector" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def main() -> None:
    holdfast.init(num_cpus=trials)
    measured = Measured()
    tune.Tuner(
        train,
        param_space={"seconds": seconds},
        tune_config=tune.TuneConfig(num_samples=trials),
        run_config=tune.RunConfig(storage_path=storage, name="run", verbose=0),
    ).fit()
    took_s, cpu_s = time.monotonic() - measured.began_s, time.process_time() - measured.cpu_s
    rows = sum(path.read_bytes().count(b"\n") for path in Path(storage).rglob("result.json"))
    print(
        json.dumps(
            {
                "rows": rows,
                "took_s": took_s,
                "controller_s": cpu_s,
                "projector_s": measured.projector_s,
            }
        )
    )


if __name__ == "__main__":
    main()
