"""A user's first steps with holdfast: three trials, one of which fails, and a restore from its
checkpoint.

tests/test_packaging.py runs this with a new wheel, and scripts/release with an installed one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast import tune


def train(config: dict[str, Any]) -> None:
    first = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            first = int(Path(folder, "epoch").read_text()) + 1
    for epoch in range(first, 3):
        if config["x"] == 2 and epoch == 1 and "FAIL" in os.environ:
            raise RuntimeError("the first run leaves something to do")
        folder = tune.staging_directory()
        Path(folder, "epoch").write_text(str(epoch))
        tune.report(
            {"loss": (config["x"] - 1) ** 2 + 1 / (epoch + 1), "first": first},
            checkpoint=tune.Checkpoint.from_directory(folder),
        )


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
    again = tune.Tuner.restore(f"{storage}/installed", train, resume_errored=True).fit()
    print(holdfast.__file__)
    print(f"{first.num_errors} of {len(first)} failed, then {again.num_errors} of {len(again)}")
    firsts = [result.metrics and result.metrics["first"] for result in again]
    print(f"epoch at which each began: {firsts}")
    print(f"best: {again.get_best_result().config}")


if __name__ == "__main__":
    main(sys.argv[1])
