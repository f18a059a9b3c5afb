"""The four steps with MLflow: connect, start the run, log, end the run.

    python examples/tracking/steps_mlflow.py local --storage /tmp/results
    python examples/tracking/steps_mlflow.py server --uri http://localhost:5000
    databricks configure --token && mv ~/.databrickscfg /shared/databrickscfg
    python examples/tracking/steps_mlflow.py databricks --config-file /shared/databrickscfg \\
        --experiment /Users/me@example.com/my-experiment
"""

from __future__ import annotations

import os
from typing import Any

import launch
import mlflow
import task
from runs import start_or_resume_mlflow_run

import holdfast
from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    is_first = train.get_context().get_world_rank() == 0

    # Step 1: connect.
    if is_first and config["databricks_config_file"]:
        # MLflow's client looks for the file there, at its first request to Databricks.
        os.environ["DATABRICKS_CONFIG_FILE"] = config["databricks_config_file"]
    if is_first:
        mlflow.set_tracking_uri(config["tracking_uri"])

    # Step 2: configure and start the run, or resume it after a failure.
    if is_first:
        start_or_resume_mlflow_run(train.get_context().get_trial_id(), config["experiment"])

    training = task.Training()
    for epoch in range(training.first_epoch, config["num_epochs"]):
        loss = training.optimize(epoch)
        metrics = {"epoch": epoch, "loss": loss}

        # Step 3: log, only in the first worker, or each number arrives twice.
        if is_first:
            mlflow.log_metrics(metrics, step=epoch)
        training.report(metrics)

    # Step 4: end the run.
    if is_first:
        mlflow.end_run()


def main() -> None:
    parser = launch.parser(__doc__, name="steps-mlflow")
    parser.add_argument("where", choices=["local", "server", "databricks"])
    parser.add_argument("--uri", help="of the tracking server")
    parser.add_argument("--config-file", help="what `databricks configure` has written")
    parser.add_argument("--experiment", default="my-experiment")
    given = parser.parse_args()
    uri = {
        "local": f"file:{os.path.abspath(given.storage)}/mlruns",
        "server": given.uri,
        "databricks": "databricks",
    }[given.where]
    # MLflow requires this variable for its file mode, and recommends a database.
    env_vars = {"MLFLOW_ALLOW_FILE_STORE": "true"} if given.where == "local" else {}
    holdfast.init(runtime_env={"env_vars": env_vars})
    launch.fit(
        train_func,
        given,
        tracking_uri=uri,
        experiment=given.experiment,
        databricks_config_file=given.config_file,
    )


if __name__ == "__main__":
    main()
