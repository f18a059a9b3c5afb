"""A user's script in the queue: unedited, without a name or `resume`. The options are JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import holdfast
from holdfast import tune
from tests.rig.script import mark, note, wait_at

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


def train(config: dict[str, Any]) -> None:
    began = time.monotonic()
    mark("began", OPTIONS["job"], config["n"])
    wait_at(f"{OPTIONS['job']}-{config['n']}")
    note(job=OPTIONS["job"], n=config["n"], began=began, ended=time.monotonic())
    tune.report({"loss": 1.0})


def main() -> None:
    holdfast.init(num_cpus=OPTIONS.get("cpus", 2))
    for name in (None, f"named-{OPTIONS['job']}")[: OPTIONS.get("fits", 1)]:
        results = tune.Tuner(
            train,
            param_space={"n": tune.grid_search(list(range(OPTIONS["trials"])))},
            run_config=tune.RunConfig(
                name=name,
                storage_path=OPTIONS["storage"],
                failure_config=tune.FailureConfig(preemption_grace_s=0.2),
            ),
        ).fit()
        print(name, len(results), results.num_terminated)


if __name__ == "__main__":
    main()
