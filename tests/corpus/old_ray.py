"""As users of Ray write it."""

import os

from ray import tune
from ray.tune.schedulers import ASHAScheduler


def objective(config):
    for step in range(6):
        tune.report({"mean_loss": config["a"] * (step + 1)})


analysis = tune.run(
    objective,
    config={"a": tune.grid_search([3, 1, 2])},
    metric="mean_loss",
    mode="min",
    name="run",
    storage_path=os.environ["CORPUS_FOLDER"] + "/results",
    scheduler=ASHAScheduler(max_t=6, grace_period=2),
    max_concurrent_trials=1,
)
print("RESULT", analysis.best_config, analysis.best_result["mean_loss"])
