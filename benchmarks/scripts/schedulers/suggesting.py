"""CPU time of `AutoSearch` per suggestion: `suggesting.py ENDED IS_TIMED ARE_STOPPED`.

10 parameters, 8 trials at a time. The time of the last hundred of ENDED trials counts, with all
that the search does when it hears of reports and of the end. IS_TIMED: the run has a time limit.
ARE_STOPPED: trials report each of up to 52 iterations, and most are stopped early. Prints seconds.
"""

import json
import os
import random
import sys
import time
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

from holdfast import tune
from holdfast.scheduler.searchers.searcher import introduce
from holdfast.tune.search import AutoSearch

ended, is_timed, are_stopped = map(int, sys.argv[1:])
WORKERS, PARAMETERS, COUNTED, EPOCHS = 8, 10, 100, 52


def end(search: AutoSearch, trial_id: str, config: dict[str, Any], draw: random.Random) -> None:
    loss = sum((value - 0.3) ** 2 for value in config.values())
    last = draw.choice((3, 9, 27, EPOCHS)) if are_stopped else 1
    row: dict[str, Any] = {}
    for epoch in range(1, last + 1):
        took_s = epoch * (1 + 9 * config["x0"])
        row = {"loss": loss + 1 / epoch, "training_iteration": epoch, "time_total_s": took_s}
        search.on_trial_result(trial_id, row)
    if are_stopped and last < EPOCHS:
        search.on_trial_pruned(trial_id)
    search.on_trial_complete(trial_id, row)


def main() -> None:
    search, draw = AutoSearch(seed=0), random.Random(0)
    space = {f"x{at}": tune.uniform(0, 1) for at in range(PARAMETERS)}
    introduce(search, "loss", "min", space, **({"time_budget_s": 1e5} if is_timed else {}))
    running: dict[str, dict[str, Any]] = {}
    began_s = 0.0
    for number in range(ended):
        if number == ended - COUNTED:
            began_s = time.process_time()
        if len(running) == WORKERS:
            ending = draw.choice(list(running))
            end(search, ending, running.pop(ending), draw)
        config = search.suggest(str(number))
        assert isinstance(config, dict)
        running[str(number)] = config
    print(json.dumps({"cpu_s": (time.process_time() - began_s) / COUNTED}))


if __name__ == "__main__":
    main()
