"""Ax, bayesian-optimization and ZOOpt, each with a space in its own terms."""

import os

import ray
from ray import train, tune
from ray.tune.search.ax import AxSearch
from ray.tune.search.bayesopt import BayesOptSearch
from ray.tune.search.zoopt import ZOOptSearch
from zoopt import ValueType

STORAGE = os.path.abspath("results")


def objective(config):
    for step in range(1, 4):
        loss = (config["x"] - 1) ** 2 + (config["y"] + 1) ** 2 + 1 / step
        tune.report({"loss": loss, "size": config["x"] + config["y"]})


def run(name, search):
    path = os.path.join(STORAGE, name)
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, objective)
    else:
        tuner = tune.Tuner(
            objective,
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", search_alg=search, num_samples=4
            ),
            run_config=train.RunConfig(name=name, storage_path=STORAGE, verbose=0),
        )
    results = tuner.fit()
    assert results.num_errors == 0
    assert all(set(result.config) == {"x", "y"} for result in results)
    return results.get_best_result().metrics["loss"]


if __name__ == "__main__":
    ray.init(num_cpus=2)
    bounds = {"x": (-5.0, 5.0), "y": (-5.0, 5.0)}
    found = [
        run("bayesopt", BayesOptSearch(bounds, random_search_steps=2, repeat_float_precision=5)),
        run(
            "zoopt",
            ZOOptSearch(
                algo="Asracos",
                budget=4,
                dim_dict={
                    "x": (ValueType.CONTINUOUS, [-5, 5], 1e-2),
                    "y": (ValueType.DISCRETE, [-5, 5], True),
                },
            ),
        ),
        run(
            "ax",
            AxSearch(
                space=[
                    {"name": "x", "type": "range", "bounds": [-5.0, 5.0]},
                    {"name": "y", "type": "range", "bounds": [-5.0, 5.0]},
                ],
                parameter_constraints=["x + y <= 8.0"],
                outcome_constraints=["size <= 6.0"],
            ),
        ),
    ]
    print("DONE", [round(loss, 2) for loss in found])
