"""Reports with a checkpoint each: `checkpoints_in_a_row.py STORAGE SOURCE COUNT OUT`.

Each is staged while the uploader forces the one before to the disk. Writes the seconds of each
but the first to OUT.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import tune

storage, source, count, out = sys.argv[1:]


def train(config: dict[str, Any]) -> None:
    taken = []
    for _ in range(config["count"]):
        began_s = time.monotonic()
        checkpoint = tune.Checkpoint.from_directory(config["source"])
        tune.report({"loss": 1.0}, checkpoint=checkpoint)
        taken.append(time.monotonic() - began_s)
    Path(config["out"]).write_text(json.dumps(taken[1:]))


if __name__ == "__main__":
    grid = tune.Tuner(
        train,
        param_space={"source": source, "count": int(count), "out": out},
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()
    if grid.num_errors:
        raise SystemExit(str(grid.errors[0]))
