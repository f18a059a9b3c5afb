"""The script's resident memory in bytes after its trials: `memory.py STORAGE COUNT`.

With a COUNT of 0 it does nothing but its imports.
"""

import json
import sys
from typing import Any

import psutil

from holdfast import tune

storage, count = sys.argv[1], int(sys.argv[2])


def noop(config: dict[str, Any]) -> None:
    tune.report({"x": 1})


def main() -> None:
    tuner = tune.Tuner(
        noop,
        param_space={"lr": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=count),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    )
    grid = tuner.fit()
    if grid.num_terminated != count:
        raise SystemExit(f"{grid.num_terminated} of {count} trials ended well")


if __name__ == "__main__":
    if count:
        main()
    print(json.dumps({"rss": psutil.Process().memory_info().rss}))
