"""A training on two workers with datasets, and the same tuned over its learning rate."""

import os
import tempfile

import pandas as pd

import ray
import ray.train
from ray import tune
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

STORAGE = os.path.abspath("storage")


def train_loop(config):
    weight, start = 0.0, 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = pd.read_json(os.path.join(folder, "state.json"), typ="series")
        weight, start = state["weight"], int(state["epoch"]) + 1
    context = ray.train.get_context()
    shard = ray.train.get_dataset_shard("train")
    for epoch in range(start, 3):
        loss = count = 0
        for batch in shard.iter_batches(batch_size=8, batch_format="numpy"):
            error = weight * batch["x"] - batch["y"]
            weight -= config["lr"] * float((error * batch["x"]).mean())
            loss, count = loss + float((error**2).sum()), count + len(error)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if context.get_world_rank() == 0:
                state = pd.Series({"weight": weight, "epoch": epoch})
                state.to_json(os.path.join(folder, "state.json"))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss / count, "epoch": epoch}, checkpoint=checkpoint)


if __name__ == "__main__":
    frame = pd.DataFrame({"x": [i / 64 for i in range(64)], "y": [i / 32 for i in range(64)]})
    dataset = ray.data.from_pandas(frame).random_shuffle(seed=1)
    trainer = DataParallelTrainer(
        train_loop_per_worker=train_loop,
        train_loop_config={"lr": 0.1},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        datasets={"train": dataset},
        run_config=RunConfig(checkpoint_config=CheckpointConfig(num_to_keep=1)),
    )
    path = os.path.join(STORAGE, "tuned")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trainable=trainer)
    else:
        tuner = tune.Tuner(
            trainer,
            param_space={"train_loop_config": {"lr": tune.grid_search([0.5, 0.01])}},
            tune_config=tune.TuneConfig(metric="loss", mode="min"),
            run_config=RunConfig(name="tuned", storage_path=STORAGE),
        )
    results = tuner.fit()
    best = results.get_best_result()
    assert best.config["train_loop_config"]["lr"] == 0.5
    assert [result.metrics["epoch"] for result in results] == [2, 2]
    print("DONE", round(best.metrics["loss"], 3) < 1)
