"""A user's script: two `fit()` at once in threads; each trial needs the only GPU of a node."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from holdfast import tune
from tests.rig.script import mark, note, wait_at


def make_trainable(name: str) -> Any:
    def train(config: dict[str, Any]) -> None:
        note(run=name)
        mark("has", os.environ["CUDA_VISIBLE_DEVICES"], name)
        if name == "first":
            wait_at("first")
        tune.report({"gpu": os.environ["CUDA_VISIBLE_DEVICES"]})

    return train


def fit(name: str) -> None:
    results = tune.Tuner(
        tune.with_resources(make_trainable(name), {"CPU": 0.5, "GPU": 1}),
        param_space={"at": tune.grid_search([0, 1])},
        run_config=tune.RunConfig(name=name, storage_path=sys.argv[1], verbose=1),
    ).fit()
    print(name, sorted(result.metrics["gpu"] for result in results if result.metrics), flush=True)


threads = [threading.Thread(target=fit, args=[name]) for name in ("first", "second")]
threads[0].start()
wait_at("second")
threads[1].start()
for thread in threads:
    thread.join()
