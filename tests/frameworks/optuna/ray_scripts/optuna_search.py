"""OptunaSearch with a limiter and ASHA, points to try first, and a space that is defined by run."""

import os

import optuna

from ray import train, tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch

STORAGE = os.path.abspath("results")


def evaluate(step, width, height, activation):
    boost = 10 if activation == "relu" else 1
    return (0.1 + width * step / 100) ** (-1) + height * 0.1 + boost


def objective(config):
    for step in range(6):
        score = evaluate(step, config["width"], config["height"], config["activation"])
        train.report({"iterations": step, "mean_loss": score})


def define_by_run(trial):
    activation = trial.suggest_categorical("activation", ["relu", "tanh"])
    trial.suggest_float("width", 1 if activation == "relu" else 5, 20)
    trial.suggest_float("height", -100, 100)


def tuned(name, search, **config):
    path = os.path.join(STORAGE, name)
    if tune.Tuner.can_restore(path):
        return tune.Tuner.restore(path, objective).fit()
    tuner = tune.Tuner(
        objective,
        tune_config=tune.TuneConfig(
            metric="mean_loss",
            mode="min",
            search_alg=search,
            scheduler=ASHAScheduler(max_t=6, grace_period=1),
            num_samples=6,
        ),
        run_config=train.RunConfig(name=name, storage_path=STORAGE),
        **config,
    )
    return tuner.fit()


if __name__ == "__main__":
    points = [{"width": 1, "height": 2, "activation": "relu"}]
    sampler = optuna.samplers.TPESampler(seed=3)
    search = ConcurrencyLimiter(
        OptunaSearch(points_to_evaluate=points, sampler=sampler), max_concurrent=2
    )
    space = {
        "width": tune.uniform(0, 20),
        "height": tune.uniform(-100, 100),
        "activation": tune.choice(["relu", "tanh"]),
    }
    results = tuned("space", search, param_space=space)
    assert len(results) == 6
    assert any(result.config == points[0] for result in results)
    results = tuned("by-run", OptunaSearch(space=define_by_run, metric="mean_loss", mode="min"))
    best = results.get_best_result("mean_loss", "min")
    print("DONE", sorted(best.config))
