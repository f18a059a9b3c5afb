"""HyperOpt with a nested space of its own, and one of tune's domains next to it."""

import os

import ray
from hyperopt import hp
from hyperopt.pyll.base import scope
from ray import train, tune
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.hyperopt import HyperOptSearch

STORAGE = os.path.abspath("results")
SPACE = {
    "width": hp.uniform("width", 0, 20),
    "depth": scope.int(hp.quniform("depth", 1, 9, 1)),
    "momentum": tune.uniform(0.8, 1.0),
    "activation": hp.choice(
        "activation",
        [
            {"name": "relu", "mult": hp.uniform("mult", 1, 2)},
            {"name": "tanh"},
        ],
    ),
}


def objective(config):
    slope = config["activation"].get("mult", 1)
    for step in range(1, 4):
        loss = slope / (0.1 + config["width"] * step / 100) + config["depth"] * 0.1
        tune.report({"mean_loss": loss * config["momentum"]})


if __name__ == "__main__":
    ray.init(num_cpus=2)
    path = os.path.join(STORAGE, "hyperopt")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, objective)
    else:
        search = HyperOptSearch(
            SPACE,
            metric="mean_loss",
            mode="min",
            n_initial_points=3,
            points_to_evaluate=[{"width": 1, "depth": 2, "activation": {"name": "tanh"}}],
        )
        tuner = tune.Tuner(
            objective,
            tune_config=tune.TuneConfig(
                search_alg=ConcurrencyLimiter(search, max_concurrent=2), num_samples=6
            ),
            run_config=train.RunConfig(name="hyperopt", storage_path=STORAGE, verbose=0),
        )
    results = tuner.fit()
    assert results.num_errors == 0
    assert all(set(result.config) == set(SPACE) for result in results)
    best = results.get_best_result("mean_loss", "min")
    print("DONE", best.config)
