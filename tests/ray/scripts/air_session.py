"""A training on two workers in the style of 2022: `ray.air.session` and configs from `ray.air`."""

import json
import os
import tempfile

import ray
from ray import air, tune
from ray.air import Checkpoint, session
from ray.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.air.constants import TRAINING_ITERATION
from ray.train.data_parallel_trainer import DataParallelTrainer


def train_func(config):
    start = 0
    checkpoint = session.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "epoch.json")) as file:
                start = json.load(file)["epoch"] + 1
    rows = [row["x"] for row in session.get_dataset_shard("train").iter_rows()]
    for epoch in range(start, config["epochs"]):
        metrics = {
            "epoch": epoch,
            "mean": sum(rows) / len(rows),
            "rank": session.get_world_rank(),
            "of": session.get_world_size(),
        }
        if session.get_world_rank() == 0:
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "epoch.json"), "w") as file:
                    json.dump({"epoch": epoch}, file)
                session.report(metrics, checkpoint=Checkpoint.from_directory(folder))
        else:
            session.report(metrics)


if __name__ == "__main__":
    path = os.path.expanduser("~/ray_results/air")
    if DataParallelTrainer.can_restore(path):
        trainer = DataParallelTrainer.restore(
            path, train_func, datasets={"train": ray.data.from_items([{"x": i} for i in range(8)])}
        )
    else:
        trainer = DataParallelTrainer(
            train_func,
            train_loop_config={"epochs": 4},
            scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
            datasets={"train": ray.data.from_items([{"x": i} for i in range(8)])},
            run_config=RunConfig(
                name="air",
                failure_config=FailureConfig(max_failures=1),
                checkpoint_config=CheckpointConfig(
                    num_to_keep=1,
                    checkpoint_score_attribute=TRAINING_ITERATION,
                    checkpoint_score_order="max",
                ),
            ),
        )
    result = trainer.fit()
    assert isinstance(result, air.Result)
    assert result.error is None
    assert result.metrics["epoch"] == 3
    assert result.metrics["of"] == 2
    assert isinstance(air.RunConfig(), tune.RunConfig)
    with result.checkpoint.as_directory() as folder:
        assert os.listdir(folder)
    print("DONE", result.metrics["epoch"])
