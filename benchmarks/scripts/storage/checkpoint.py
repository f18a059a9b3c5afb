"""One report with a checkpoint: `checkpoint.py STORAGE SOURCE copied|staged OUT`.

Writes the seconds that it took to OUT. `staged` writes the files to the staging directory first.
"""

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import tune

storage, source, way, out = sys.argv[1:]


def train(config: dict[str, Any]) -> None:
    directory = config["source"]
    if config["way"] == "staged":
        directory = shutil.copytree(directory, tune.staging_directory(), dirs_exist_ok=True)
    tune.report({"loss": 1.0})
    began_s = time.monotonic()
    tune.report({"loss": 0.5}, checkpoint=tune.Checkpoint.from_directory(directory))
    Path(config["out"]).write_text(repr(time.monotonic() - began_s))


if __name__ == "__main__":
    grid = tune.Tuner(
        train,
        param_space={"source": source, "way": way, "out": out},
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()
    if grid.num_errors:
        raise SystemExit(str(grid.errors[0]))
