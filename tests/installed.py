"""What a user does first with holdfast: three trials, one of which fails, and a restore.

tests/test_packaging.py runs this with a wheel beside it, and scripts/release with one installed.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import holdfast
from holdfast import tune


def train(config: dict[str, Any]) -> None:
    for epoch in range(3):
        if config["x"] == 2 and epoch == 1 and "FAIL" in os.environ:
            raise RuntimeError("the first run is to leave something to do")
        tune.report({"loss": (config["x"] - 1) ** 2 + 1 / (epoch + 1)})


def main(storage: str) -> None:
    os.environ["FAIL"] = "1"
    tuner = tune.Tuner(
        train,
        param_space={"x": tune.grid_search([0, 1, 2])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=storage, name="installed", verbose=0),
    )
    first = tuner.fit()
    del os.environ["FAIL"]
    again = tune.Tuner.restore(f"{storage}/installed", train, restart_errored=True).fit()
    print(holdfast.__file__)
    print(len(first), first.num_errors, len(again), again.num_errors)
    print(again.get_best_result().config)


if __name__ == "__main__":
    main(sys.argv[1])
