"""A function, a Tuner and ASHA, as in the Tune quickstart."""

import json
import os
import tempfile

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

STORAGE = os.path.abspath("results")


def objective(config):
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "state.json")) as file:
                start = json.load(file)["step"] + 1
    for step in range(start, 8):
        loss = (0.1 + config["width"] * step / 100) ** (-1) + config["height"] * 0.1
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "state.json"), "w") as file:
                json.dump({"step": step}, file)
            tune.report(
                {"iterations": step, "mean_loss": loss},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


if __name__ == "__main__":
    ray.init(num_cpus=2)
    path = os.path.join(STORAGE, "asha")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trainable=objective, resume_errored=True)
    else:
        tuner = tune.Tuner(
            tune.with_resources(objective, {"cpu": 1}),
            param_space={
                "width": tune.uniform(1, 20),
                "height": tune.uniform(-100, 100),
                "activation": tune.choice(["relu", "tanh"]),
            },
            tune_config=tune.TuneConfig(
                metric="mean_loss",
                mode="min",
                num_samples=4,
                scheduler=ASHAScheduler(max_t=8, grace_period=2, reduction_factor=2),
            ),
            run_config=tune.RunConfig(
                name="asha",
                storage_path=STORAGE,
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            ),
        )
    results = tuner.fit()
    best = results.get_best_result()
    assert len(results) == 4
    assert not results.errors
    assert best.metrics["iterations"] == 7
    assert set(results.get_dataframe().columns) >= {"mean_loss", "config/width"}
    ray.shutdown()
    print("DONE", best.config["activation"] in ("relu", "tanh"))
