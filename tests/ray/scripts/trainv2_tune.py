"""A trainer inside a Tune function, which reports to the trial around it, as Train V2 has it."""

import os

import ray
import ray.train
import ray.tune
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.tune.integration.ray_train import TuneReportCallback


def train_fn(config):
    for epoch in range(3):
        ray.train.report({"epoch": epoch, "loss": config["lr"] / (epoch + 1)})


def driver(config):
    trainer = DataParallelTrainer(
        train_fn,
        train_loop_config=config["train_loop_config"],
        scaling_config=ray.train.ScalingConfig(num_workers=1),
        run_config=ray.train.RunConfig(
            name=f"train-{config['train_loop_config']['lr']}",
            callbacks=[TuneReportCallback()],
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    path = os.path.expanduser("~/ray_results/around")
    if ray.tune.Tuner.can_restore(path):
        tuner = ray.tune.Tuner.restore(path, driver)
    else:
        tuner = ray.tune.Tuner(
            ray.tune.with_resources(driver, {"cpu": 0}),
            param_space={"train_loop_config": {"lr": ray.tune.grid_search([1.0, 2.0])}},
            run_config=ray.tune.RunConfig(name="around"),
        )
    results = tuner.fit()
    assert not results.errors, results.errors
    best = results.get_best_result(metric="loss", mode="min")
    print("DONE", best.config["train_loop_config"]["lr"], best.metrics["epoch"])
