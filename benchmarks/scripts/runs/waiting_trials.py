"""Trials that report once a minute: `waiting_trials.py STORAGE COUNT SECONDS`."""

import sys
import time
from typing import Any

import holdfast
from holdfast import tune

storage, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
_PERIOD_S = 60.0


def wait(config: dict[str, Any]) -> None:
    due = time.monotonic()
    until, step = due + seconds, 0
    while due < until:
        step += 1
        tune.report({"score": step})
        due += _PERIOD_S
        time.sleep(max(0.0, min(due, until) - time.monotonic()))


def main() -> None:
    holdfast.init(num_cpus=count)
    grid = tune.Tuner(
        wait,
        param_space={"lr": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=count, max_concurrent_trials=count),
        run_config=tune.RunConfig(name="waiting", storage_path=storage),
    ).fit()
    if grid.num_terminated != count:
        raise SystemExit(f"{grid.num_terminated} of {count} trials ended well")


if __name__ == "__main__":
    main()
