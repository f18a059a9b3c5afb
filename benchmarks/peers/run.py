"""Runs of a peer's algorithms: `run.py PEER < request.json`, one line of JSON for each.

A request: {"runs": [{"task", "algorithm", "workers", "trainings", "seeds"}, ...]}.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])


def main() -> None:
    from benchmarks.peers.clock import play
    from benchmarks.tasks.catalogue import task as task_of
    from benchmarks.tasks.task import Field

    # Keep the output of libraries out of the results.
    answers, sys.stdout = sys.stdout, sys.stderr
    peer: Any = import_module(f"benchmarks.peers.{sys.argv[1]}_players")
    print(json.dumps({"version": peer.VERSION}), file=answers, flush=True)
    for asked in json.load(sys.stdin)["runs"]:
        task = task_of(asked["task"])
        field = Field(workers=asked["workers"], trainings=asked["trainings"])
        began_s = time.monotonic()
        courses = [
            play(peer.PLAYERS[asked["algorithm"]](task, seed), task, seed, field)
            for seed in asked["seeds"]
        ]
        took_s = time.monotonic() - began_s
        found = {**asked, "courses": courses, "took_s": took_s}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
