"""`setup_wandb` and `setup_mlflow` in trials and ranks, and what a tracker will not open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.air.integrations.mlflow import MLflowLoggerCallback, setup_mlflow
from holdfast.air.integrations.wandb import setup_wandb
from holdfast.trial.errors import TuneError
from tests.rig.trackers import tracked
from tests.rig.trackers.mlflow_server import MlflowServer

pytestmark = pytest.mark.process


def logs_to_wandb(config: dict[str, Any]) -> None:
    attempt = train.get_context().get_attempt()
    run = setup_wandb(config, project="p", mode="offline")
    run.log({"loss": 1.0, "attempt": attempt})
    run.finish()
    tune.report({"loss": 1.0, "tracks": bool(run)})
    if attempt == 1:
        raise RuntimeError("once more")


def logs_to_mlflow(config: dict[str, Any]) -> None:
    attempt = train.get_context().get_attempt()
    mlflow = setup_mlflow(
        config, config["uri"], experiment_name="inside", create_experiment_if_not_exists=True
    )
    mlflow.log_metrics({"attempt": attempt}, step=attempt)
    mlflow.end_run()
    train.report({"loss": 1.0})
    if attempt == 1:
        os._exit(9)


def run_config(tmp_path: Path, **more: Any) -> tune.RunConfig:
    failures = tune.FailureConfig(max_failures=1)
    return tune.RunConfig(storage_path=str(tmp_path), name="run", failure_config=failures, **more)


def test_another_attempt_has_the_wandb_run_of_its_trial(tmp_path: Path) -> None:
    result = tune.Tuner(logs_to_wandb, run_config=run_config(tmp_path)).fit()[0]
    runs = tracked.wandb_offline(tmp_path)
    assert {run_id for run_id, _ in runs} == {(result.metrics or {})["trial_id"]}
    values = [one.value for _, logged in runs for one in logged if one.name == "attempt"]
    assert sorted(values) == [1, 2]


def test_the_first_rank_alone_tracks_and_another_attempt_resumes_in_its_mlflow_run(
    tmp_path: Path, mlflow_server: MlflowServer
) -> None:
    trainer = train.DataParallelTrainer(
        logs_to_mlflow,
        train_loop_config={"uri": mlflow_server.uri},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=run_config(tmp_path),
    )
    trainer.fit()
    logged = tracked.mlflow_logged(mlflow_server.uri, "inside", "attempt")
    assert len(tracked.mlflow_runs(mlflow_server.uri, "inside")) == 1
    assert sorted(one.step for one in logged) == [1, 2]


def reports(config: dict[str, Any]) -> None:
    for _ in range(100_000):
        tune.report({"loss": 1.0})


def test_a_store_that_mlflow_refuses_ends_the_run_with_its_words(tmp_path: Path) -> None:
    callbacks = [MLflowLoggerCallback(f"file:{tmp_path}/mlruns")]
    with pytest.raises(TuneError, match=r"MLflowLoggerCallback\.setup.*MLFLOW_ALLOW_FILE_STORE"):
        tune.Tuner(reports, run_config=run_config(tmp_path, callbacks=callbacks)).fit()
