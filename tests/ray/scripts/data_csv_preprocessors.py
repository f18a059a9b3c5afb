"""A table of flowers: CSV, preprocessors, and a training whose checkpoints keep the scaler."""

import json
import os
import tempfile

import numpy as np
import ray
from ray import train
from ray.data.preprocessor import Preprocessor
from ray.data.preprocessors import Chain, Concatenator, LabelEncoder, SimpleImputer, StandardScaler
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

FEATURES = ["sepal", "petal"]
STORAGE = os.path.abspath("results")


def write_table(path):
    rng = np.random.default_rng(0)
    with open(path, "w") as file:
        file.write("id,sepal,petal,kind\n")
        for row in range(240):
            kind = ("setosa", "virginica")[row % 2]
            sepal, petal = rng.normal([5, 1.5] if kind == "setosa" else [7, 5], 0.4)
            file.write(f"{row},{'' if row % 40 == 7 else round(sepal, 3)},{petal:.3f},{kind}\n")


def train_loop_per_worker(config):
    weights, start = np.zeros(len(FEATURES) + 1), 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = np.load(os.path.join(folder, "model.npz"))
        weights, start = saved["weights"], int(saved["epoch"]) + 1
    shard = train.get_dataset_shard("train")
    for epoch in range(start, config["epochs"]):
        losses = []
        for batch in shard.iter_batches(batch_size=config["batch_size"]):
            x = np.column_stack([batch["features"], np.ones(len(batch["kind"]))])
            guess = 1 / (1 + np.exp(-x @ weights))
            losses.append(float(np.mean((guess - batch["kind"]) ** 2)))
            weights = weights - config["lr"] * x.T @ (guess - batch["kind"]) / len(x)
        valid = train.get_dataset_shard("valid")
        right = [
            np.mean(
                (np.column_stack([b["features"], np.ones(len(b["kind"]))]) @ weights > 0)
                == b["kind"]
            )
            for b in valid.iter_batches(batch_size=None)
        ]
        metrics = {"loss": float(np.mean(losses)), "accuracy": float(np.mean(right))}
        with tempfile.TemporaryDirectory() as folder:
            if train.get_context().get_world_rank() == 0:
                np.savez(os.path.join(folder, "model.npz"), weights=weights, epoch=epoch)
                train.report(metrics, checkpoint=Checkpoint.from_directory(folder))
            else:
                train.report(metrics)


if __name__ == "__main__":
    ray.init(ignore_reinit_error=True)
    ray.data.DataContext.get_current().enable_progress_bars = False
    if not os.path.exists("flowers.csv"):
        write_table("flowers.csv")
    dataset = ray.data.read_csv("flowers.csv", override_num_blocks=4)
    train_dataset, valid_dataset = dataset.train_test_split(test_size=0.25, shuffle=True, seed=1)
    test_dataset = valid_dataset.drop_columns(["kind"])
    assert (train_dataset.count(), valid_dataset.count()) == (180, 60)
    assert test_dataset.columns() == ["id", "sepal", "petal"]

    preprocessor = Chain(
        SimpleImputer(columns=["sepal"], strategy="mean"),
        StandardScaler(columns=FEATURES),
        LabelEncoder(label_column="kind"),
        Concatenator(columns=FEATURES, output_column_name="features", dtype=np.float32),
    )
    train_dataset = preprocessor.fit_transform(train_dataset)
    valid_dataset = preprocessor.transform(valid_dataset)

    trainer = DataParallelTrainer(
        train_loop_per_worker,
        train_loop_config={"lr": 0.5, "epochs": 5, "batch_size": 16},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        datasets={"train": train_dataset.random_shuffle(seed=0), "valid": valid_dataset},
        run_config=RunConfig(
            name="flowers",
            storage_path=STORAGE,
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
        metadata={"preprocessor": preprocessor.serialize()},
    )
    if DataParallelTrainer.can_restore(os.path.join(STORAGE, "flowers")):
        trainer = DataParallelTrainer.restore(os.path.join(STORAGE, "flowers"))
    result = trainer.fit()
    assert result.metrics["training_iteration"] == 5
    assert result.metrics["accuracy"] > 0.9, result.metrics

    # Later, in another process: the same numbers, from the checkpoint.
    again = Preprocessor.deserialize(result.checkpoint.get_metadata()["preprocessor"])
    batch = again.transform_batch(dataset.take_batch(4))
    assert batch["features"].shape == (4, 2)
    assert json.loads(json.dumps(result.metrics["loss"])) < 0.3
    print("DONE", sorted(batch))
