"""Train V2: reports with validation, collectives and a callback. The script resumes by itself."""

import json
import os
import tempfile

import ray.train
import ray.train.collective
from ray.train import (
    CheckpointConfig,
    FailureConfig,
    ReportedCheckpointStatus,
    RunConfig,
    ScalingConfig,
    UserCallback,
    ValidationConfig,
    ValidationTaskConfig,
)
from ray.train.data_parallel_trainer import DataParallelTrainer


class Log(UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        print("reported", metrics[0]["epoch"], checkpoint is not None)

    def after_exception(self, run_context, worker_exceptions):
        print("failed", sorted(worker_exceptions))


def validate(checkpoint, penalty=0.0):
    with checkpoint.as_directory() as folder:
        with open(os.path.join(folder, "weights.json")) as file:
            weights = json.load(file)
    return {"accuracy": 1 - 1 / (1 + weights["epoch"]) - penalty}


def train_fn(config):
    rank = ray.train.get_context().get_world_rank()
    seed = ray.train.collective.broadcast_from_rank_zero({"seed": 7} if rank == 0 else None)
    assert seed == {"seed": 7}
    start = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "weights.json")) as file:
                start = json.load(file)["epoch"] + 1
    for epoch in range(start, config["epochs"]):
        metrics = {"epoch": epoch, "loss": 1 / (1 + epoch)}
        if rank == 0:
            folder = tempfile.mkdtemp()
            with open(os.path.join(folder, "weights.json"), "w") as file:
                json.dump({"epoch": epoch}, file)
            ray.train.report(
                metrics,
                checkpoint=ray.train.Checkpoint.from_directory(folder),
                checkpoint_upload_mode=ray.train.CheckpointUploadMode.ASYNC,
                delete_local_checkpoint_after_upload=True,
                validation=ValidationTaskConfig(fn_kwargs={"penalty": 0.1}),
            )
            assert not os.path.exists(folder)
        else:
            ray.train.report(metrics)
        if ray.train.get_preemption_info() is not None:
            print("preempted")
    ray.train.collective.barrier()
    reported = ray.train.get_all_reported_checkpoints()
    assert [one.metrics["epoch"] for one in reported] == list(range(config["epochs"]))
    assert {one.status for one in reported} == {ReportedCheckpointStatus.VALIDATED}


if __name__ == "__main__":
    trainer = DataParallelTrainer(
        train_fn,
        train_loop_config={"epochs": 4},
        scaling_config=ScalingConfig(num_workers=2),
        validation_config=ValidationConfig(fn=validate),
        run_config=RunConfig(
            name="validated",
            storage_path=os.path.abspath("results"),
            failure_config=FailureConfig(max_failures=2, controller_failure_limit=3),
            checkpoint_config=CheckpointConfig(
                checkpoint_score_attribute="accuracy", checkpoint_score_order="max"
            ),
            callbacks=[Log()],
            worker_runtime_env={"env_vars": {"A": "1"}},
        ),
    )
    result = trainer.fit()
    best = result.get_best_checkpoint("accuracy", "max")
    with best.as_directory() as folder:
        print("DONE", sorted(os.listdir(folder))[-1], round(result.metrics["accuracy"], 3))
