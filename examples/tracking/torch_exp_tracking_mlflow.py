"""Log a training of two workers to MLflow: into a database file, or to a server.

    python examples/tracking/torch_exp_tracking_mlflow.py --storage /tmp/results
    python examples/tracking/torch_exp_tracking_mlflow.py --storage /tmp/results \\
        --tracking-uri http://localhost:5000

Kill this script, or one of its workers, at any moment and start it again: the training resumes,
and so does the tracker's run, which is found by the trial's id.
"""

from __future__ import annotations

from typing import Any

import launch
import mlflow
import task
from runs import start_or_resume_mlflow_run

from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    context = train.get_context()
    if context.get_world_rank() == 0:
        mlflow.set_tracking_uri(config["tracking_uri"])
        start_or_resume_mlflow_run(context.get_trial_id(), "torch-mlflow")
        mlflow.log_params({"lr": 0.01, "batch_size": 32})
    training = task.Training(lr=0.01, batch_size=32)

    for epoch in range(training.first_epoch, config["num_epochs"]):
        loss = training.optimize(epoch)
        metrics = {"epoch": epoch, "loss": loss}
        # Log before the report: a reported epoch does not run again, so it must be logged.
        if context.get_world_rank() == 0:
            mlflow.log_metrics(metrics, step=epoch)
        training.report(metrics)

    if context.get_world_rank() == 0:
        mlflow.end_run()


def main() -> None:
    parser = launch.parser(__doc__, name="torch-mlflow")
    parser.add_argument("--tracking-uri", help="of a server; else a database in the storage")
    given = parser.parse_args()
    uri = given.tracking_uri or launch.mlflow_database(given)
    launch.fit(train_func, given, tracking_uri=uri)


if __name__ == "__main__":
    main()
