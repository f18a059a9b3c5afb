"""Runs of a side's algorithms: `run.py SIDE < request.json`, one line of JSON for each.

A request: {"runs": [{"task", "algorithm", "workers", "trainings", "seeds"}, ...]}.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])


def main() -> None:
    from benchmarks.tasks.catalogue import task as task_of
    from benchmarks.tasks.task import Field

    # Keep the output of libraries out of the results.
    answers, sys.stdout = sys.stdout, sys.stderr
    version, course = _side(sys.argv[1])
    print(json.dumps({"version": version}), file=answers, flush=True)
    for asked in json.load(sys.stdin)["runs"]:
        task = task_of(asked["task"])
        field = Field(workers=asked["workers"], trainings=asked["trainings"])
        began_s = time.monotonic()
        courses = [course(asked["algorithm"], task, seed, field) for seed in asked["seeds"]]
        took_s = time.monotonic() - began_s
        found = {**asked, "courses": courses, "took_s": took_s}
        print(json.dumps(found), file=answers, flush=True)


def _side(name: str) -> tuple[str, Callable[..., Any]]:
    """Its version, and a function of (algorithm, task, seed, field) that runs it."""
    if name == "holdfast":  # it simulates itself
        import holdfast
        from benchmarks.quality.external.contestants import course

        return holdfast.__version__, course
    from benchmarks.peers.clock import play

    peer: Any = import_module(f"benchmarks.peers.{name}_players")
    players = peer.PLAYERS
    return peer.VERSION, lambda algorithm, task, seed, field: play(
        players[algorithm](task, seed), task, seed, field
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
