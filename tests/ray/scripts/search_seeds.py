"""Random search whose samples the seeds of the script fix, with functions that draw numbers."""

import os
import random

import numpy as np
import ray
from ray import train, tune
from ray.tune.search.basic_variant import BasicVariantGenerator

STORAGE = os.path.abspath("results")


def objective(config):
    for step in range(1, 4):
        tune.report({"loss": (config["x"] - 0.5) ** 2 / step + config["noise"]})


def run(name, seed=None):
    path = os.path.join(STORAGE, name)
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, objective, resume_errored=True)
    else:
        search = None if seed is None else BasicVariantGenerator(random_state=seed)
        tuner = tune.Tuner(
            objective,
            param_space={
                "x": tune.uniform(0, 1),
                "noise": tune.sample_from(lambda spec: np.random.normal(0, 0.01)),
                "batch": tune.sample_from(lambda spec: random.choice([16, 32, 64])),
                "layers": tune.choice([1, 2, 3]),
            },
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=3, search_alg=search
            ),
            run_config=train.RunConfig(name=name, storage_path=STORAGE, verbose=0),
        )
    results = tuner.fit()
    return sorted(tuple(sorted(result.config.items())) for result in results)


if __name__ == "__main__":
    ray.init(num_cpus=2)
    random.seed(42)
    np.random.seed(42)
    first, second = run("first"), run("second")
    assert first != second
    random.seed(42)
    np.random.seed(42)
    assert run("again") == first
    assert run("own_seed", seed=7) == run("own_seed_again", seed=7)
    print("DONE", len(first))
    ray.shutdown()
