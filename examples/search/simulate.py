"""Which scheduler for 500 trials on 25 workers, some slow, some lost? Known in seconds.

    python examples/search/simulate.py --trials 500

The learning curves come from a function. The schedulers and the state machine of `Tuner.fit()` run
on a virtual clock: the same seed gives the same run, decision by decision.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from holdfast import tune
from holdfast.simulate import Faults, simulate
from holdfast.tune.schedulers import ASHAScheduler, FIFOScheduler, HyperBandScheduler

EPOCHS = 81
SPACE = {"lr": tune.loguniform(1e-4, 1), "width": tune.choice([32, 64, 128])}
FAULTS = Faults(
    failure_rate=0.0005,  # of an epoch
    straggler_share=0.1,
    straggler_factor=3,
    workers_per_node=5,
    node_life_s=24 * 3600,
    node_absence_s=1800,
)


def loss(config: dict[str, Any], epoch: int) -> float:
    """Fall to a floor that depends on the learning rate, more slowly if the rate is smaller."""
    floor = 0.1 + 0.05 * abs(math.log10(config["lr"]) + 2) + 2 / config["width"]
    speed = 0.03 + 0.3 * math.sqrt(config["lr"])
    return floor + (1 - floor) * math.exp(-speed * epoch)


def seconds(config: dict[str, Any]) -> float:
    return 30 + 0.2 * config["width"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    for scheduler in (
        FIFOScheduler(),
        ASHAScheduler(max_t=EPOCHS, reduction_factor=3),
        HyperBandScheduler(max_t=EPOCHS, reduction_factor=3),
    ):
        found = simulate(
            loss,
            param_space=SPACE,
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=given.trials, scheduler=scheduler
            ),
            run_config=tune.RunConfig(
                stop={"training_iteration": EPOCHS},
                failure_config=tune.FailureConfig(max_failures=3, max_lost_workers=-1),
            ),
            workers=25,
            seconds_per_iteration=seconds,
            checkpoint_every=9,
            start_s=20,
            faults=FAULTS,
            seed=given.seed,
        )
        print(f"{type(scheduler).__name__}\n{found}\n")


if __name__ == "__main__":
    main()
