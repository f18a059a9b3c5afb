"""XGBoost in a tuned function with the report callback, and an XGBoostTrainer with a loop."""

import os

import numpy as np
import xgboost as xgb

import ray.train
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer
from ray.tune.integration.xgboost import TuneReportCheckpointCallback
from ray.tune.schedulers import ASHAScheduler

STORAGE = os.path.abspath("results")


def data():
    generator = np.random.default_rng(0)
    x = generator.random((200, 4))
    return x, (x.sum(axis=1) > 2).astype(int)


def objective(config):
    x, y = data()
    train_set, test_set = xgb.DMatrix(x[:150], label=y[:150]), xgb.DMatrix(x[150:], label=y[150:])
    checkpoint, booster = tune.get_checkpoint(), None
    if checkpoint:
        booster = TuneReportCheckpointCallback.get_model(checkpoint)
    xgb.train(
        config,
        train_set,
        evals=[(test_set, "eval")],
        num_boost_round=8 - (booster.num_boosted_rounds() if booster else 0),
        verbose_eval=False,
        xgb_model=booster,
        callbacks=[TuneReportCheckpointCallback(frequency=1)],
    )


def loop(config):
    x, y = data()
    shard = slice(ray.train.get_context().get_world_rank(), None, 2)
    train_set = xgb.DMatrix(x[shard], label=y[shard])
    checkpoint = ray.train.get_checkpoint()
    booster = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
    xgb.train(
        {"objective": "binary:logistic", "eta": 0.3},
        train_set,
        evals=[(train_set, "train")],
        num_boost_round=4 - (booster.num_boosted_rounds() if booster else 0),
        verbose_eval=False,
        xgb_model=booster,
        callbacks=[RayTrainReportCallback(frequency=1)],
    )


if __name__ == "__main__":
    path = os.path.join(STORAGE, "tuned")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, objective)
    else:
        tuner = tune.Tuner(
            objective,
            param_space={
                "objective": "binary:logistic",
                "eval_metric": ["logloss", "error"],
                "max_depth": tune.randint(1, 5),
                "eta": tune.loguniform(1e-3, 1e-1),
            },
            tune_config=tune.TuneConfig(
                metric="eval-logloss",
                mode="min",
                num_samples=3,
                scheduler=ASHAScheduler(max_t=8, grace_period=2),
            ),
            run_config=RunConfig(name="tuned", storage_path=STORAGE),
        )
    results = tuner.fit()
    best = results.get_best_result()
    booster = TuneReportCheckpointCallback.get_model(best.checkpoint)
    assert booster.num_boosted_rounds() == best.metrics["training_iteration"]

    path = os.path.join(STORAGE, "trainer")
    if XGBoostTrainer.can_restore(path):
        trainer = XGBoostTrainer.restore(path)
    else:
        trainer = XGBoostTrainer(
            loop,
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
            run_config=RunConfig(name="trainer", storage_path=STORAGE),
        )
    result = trainer.fit()
    print("DONE", RayTrainReportCallback.get_model(result.checkpoint).num_boosted_rounds())
