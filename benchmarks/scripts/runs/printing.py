"""Prints lines as fast as it can: `printing.py holdfast|shown|line|block FOLDER COUNT`.

It prints in a trial, shown in the terminal or not, or to a file that is buffered by lines or by
blocks.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, TextIO

kind, folder, count = sys.argv[1:]


def storm(lines: int, file: TextIO | None) -> float:
    began_s = time.perf_counter()
    for number in range(lines):
        print("epoch", number, "loss", 0.25, file=file)
    (file or sys.stdout).flush()
    return time.perf_counter() - began_s


def in_a_trial() -> float:
    from holdfast import tune

    def train(config: dict[str, Any]) -> None:
        tune.report({"seconds": storm(config["lines"], None)})

    run_config = tune.RunConfig(storage_path=folder, verbose=int(kind == "shown"))
    (result,) = tune.Tuner(train, param_space={"lines": int(count)}, run_config=run_config).fit()
    assert result.metrics is not None
    seconds: float = result.metrics["seconds"]
    return seconds


def to_a_file() -> float:
    with open(Path(folder, "file"), "a", buffering=1 if kind == "line" else -1) as file:
        return storm(int(count), file)


if __name__ == "__main__":
    seconds = to_a_file() if kind in ("line", "block") else in_a_trial()
    print(json.dumps({"seconds": seconds}))
