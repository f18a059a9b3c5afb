"""Reports with a checkpoint each: `upload_reports.py STORAGE SOURCE COUNT LINE OUT`.

After the first, the trial sends a message to the socket LINE and waits for an answer; then it
makes COUNT reports, and writes the seconds of each to OUT. Uploads that are unfinished at the end
are given up.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import tune

storage, source, count, line, out = sys.argv[1:]


def train(config: dict[str, Any]) -> None:
    checkpoint = tune.Checkpoint.from_directory(config["source"])
    tune.report({"loss": 1.0}, checkpoint=checkpoint)
    with socket.socket(socket.AF_UNIX) as told:
        told.connect(config["line"])
        told.recv(1)
    taken = []
    for step in range(config["count"]):
        began_s = time.perf_counter()
        tune.report({"loss": 1.0 / (step + 2)}, checkpoint=checkpoint)
        taken.append(time.perf_counter() - began_s)
    Path(config["out"]).write_text(json.dumps(taken))


if __name__ == "__main__":
    os.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "1"
    space = {"source": source, "count": int(count), "line": line, "out": out}
    run_config = tune.RunConfig(storage_path=storage, verbose=0)
    try:
        tune.Tuner(train, param_space=space, run_config=run_config).fit()
    except Exception as error:  # if the bucket stalls, fit() lists what is missing there
        print(error, file=sys.stderr)
