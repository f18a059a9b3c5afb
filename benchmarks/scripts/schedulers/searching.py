"""A search that takes THINKS_S per suggestion: `searching.py SHARE WORKERS THINKS_S LASTS_S ROOT`.

SHARE is its `look_ahead`. Each trial lasts LASTS_S, give or take a quarter. Prints which share of
the workers' time was idle between the first time that all had a trial and the last start.
"""

import json
import random
import sys
import time
from typing import Any

from holdfast import tune
from holdfast.tune.search import Searcher

share, workers, thinks_s, lasts_s = (float(given) for given in sys.argv[1:5])
count = int(workers)


class Thinking(Searcher):
    look_ahead = share

    def suggest(self, trial_id: str) -> dict[str, Any]:
        time.sleep(thinks_s)
        return {"x": random.Random(trial_id.rpartition("_")[2]).random()}


def train(config: dict[str, Any]) -> None:
    began = time.time()
    time.sleep(lasts_s * (0.75 + 0.5 * config["x"]))
    tune.report({"began": began, "ended": time.time()})


def main() -> None:
    results = tune.Tuner(
        tune.with_resources(train, {"cpu": 0.001}),
        tune_config=tune.TuneConfig(
            search_alg=Thinking(), num_samples=3 * count, max_concurrent_trials=count
        ),
        run_config=tune.RunConfig(storage_path=sys.argv[5], verbose=0),
    ).fit()
    spans = sorted((row["began"], row["ended"]) for one in results if (row := one.metrics))
    begins, ends = spans[count - 1][0], spans[-1][0]
    busy_s = sum(max(0.0, min(ended, ends) - max(began, begins)) for began, ended in spans)
    print(json.dumps({"idle": 1 - busy_s / (count * (ends - begins))}))


if __name__ == "__main__":
    main()
