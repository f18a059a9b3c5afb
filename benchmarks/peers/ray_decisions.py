"""How far Ray's schedulers let each trial come: `ray_decisions.py < cases.json`.

A case: {"scheduler", "settings", "task", "seed", "workers", "order"}: as many trials as `order`
is long, of which the one that is added at place i has the config of number order[i]. A setting
"factor" stands for a custom_explore_fn that multiplies all of a config by it. Prints for each case
a JSON list: for number 0, 1, ... the epochs, and the config in the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])


def main() -> None:
    for case in json.load(sys.stdin):
        print(json.dumps(ends(case)), flush=True)


def ends(case: Any) -> list[Any]:
    from ray.tune import schedulers

    from benchmarks.peers.clock import play, scaled_by
    from benchmarks.peers.ray_schedulers import RayPlayer
    from benchmarks.tasks.catalogue import task as task_of
    from benchmarks.tasks.task import Field

    task = task_of(case["task"])
    settings = case["settings"]
    population = None
    if (factor := settings.pop("factor", None)) is not None:
        settings |= {"custom_explore_fn": scaled_by(factor), "log_config": False}
        population = len(case["order"])
    scheduler = getattr(schedulers, case["scheduler"])(**settings)
    player = RayPlayer(task, case["seed"], scheduler, population=population, order=case["order"])
    play(player, task, case["seed"], Field(workers=case["workers"], trainings=1e6))
    return player.ends()


if __name__ == "__main__":
    main()
