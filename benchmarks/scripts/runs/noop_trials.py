"""Trials that report once: `noop_trials.py LIBRARY STORAGE COUNT [MODULE]`.

MODULE is imported and used by the trainable, so that workers import it, too.
"""

import json
import sys
import time
from importlib import import_module
from typing import Any

library, storage, count = sys.argv[1:4]
USED = [import_module(name) for name in sys.argv[4:]]
tune: Any = import_module(f"{library}.tune")


def noop(config: dict[str, Any]) -> None:
    tune.report({"x": len(USED)})


def main() -> None:
    tuner = tune.Tuner(
        noop,
        param_space={"lr": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=int(count)),
        run_config=tune.RunConfig(name="noop", storage_path=storage, verbose=0),
    )
    began_s = time.monotonic()
    grid = tuner.fit()
    fit_s = time.monotonic() - began_s
    if grid.num_terminated != int(count):
        raise SystemExit(f"{grid.num_terminated} of {count} trials ended well")
    print(json.dumps({"fit_s": fit_s}))


if __name__ == "__main__":
    main()
