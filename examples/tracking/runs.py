"""The run of a trial in a tracker: the same in each attempt.

W&B uses the trial's id as the run's. MLflow names runs itself, so the id is a tag that identifies
the run. Comet needs a key of 32 to 50 letters and digits: a digest of the id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import mlflow

TAG = "trial_id"


def tags_of(trial_id: str) -> dict[str, str]:
    return {TAG: trial_id}


def find_mlflow_run(trial_id: str, tracking_uri: str, experiment_name: str) -> str | None:
    """The id of the run that an earlier attempt has started, or None."""
    client = mlflow.MlflowClient(tracking_uri)
    experiment = client.get_experiment_by_name(experiment_name)
    if experiment is None:
        return None
    found = client.search_runs([experiment.experiment_id], f"tags.{TAG} = '{trial_id}'")
    return found[0].info.run_id if found else None


def start_or_resume_mlflow_run(trial_id: str, experiment_name: str) -> mlflow.ActiveRun:
    """Make the trial's run the active one, in this experiment of the current tracking URI."""
    mlflow.set_experiment(experiment_name)
    found = find_mlflow_run(trial_id, mlflow.get_tracking_uri(), experiment_name)
    if found:
        return mlflow.start_run(run_id=found)
    return mlflow.start_run(run_name=trial_id, tags=tags_of(trial_id))


def log_missing(history: Sequence[Mapping[str, float]]) -> None:
    """Log the epochs of the active run that MLflow lacks."""
    mlflow.flush_async_logging()
    run = mlflow.active_run()
    assert run is not None
    known = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    steps = {metric.step for metric in known}
    for metrics in history:
        if metrics["epoch"] not in steps:
            mlflow.log_metrics(dict(metrics), step=int(metrics["epoch"]))


def comet_key(trial_id: str) -> str:
    return hashlib.sha1(trial_id.encode()).hexdigest()
