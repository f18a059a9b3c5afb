"""Log a Lightning training of two workers to MLflow, with Lightning's own MLFlowLogger.

    python examples/tracking/lightning_exp_tracking_mlflow.py --storage /tmp/results
    python examples/tracking/lightning_exp_tracking_mlflow.py --storage /tmp/results \\
        --tracking-uri http://localhost:5000

`--autolog` uses `mlflow.pytorch.autolog()` instead.
"""

from __future__ import annotations

from typing import Any

import launch
import mlflow
from lightning.pytorch.loggers import MLFlowLogger
from lightning_exp_tracking_model_dl import train_with
from runs import find_mlflow_run, log_missing, start_or_resume_mlflow_run, tags_of

from holdfast import train


def train_func(config: dict[str, Any]) -> None:
    context = train.get_context()
    logger = None
    if context.get_world_rank() == 0:
        trial_id, uri = context.get_trial_id(), config["tracking_uri"]
        logger = MLFlowLogger(
            experiment_name="demo-project",
            run_name="demo-run",
            tracking_uri=uri,
            run_id=find_mlflow_run(trial_id, uri, "demo-project"),
            tags=tags_of(trial_id),
        )
    train_with(logger, config["num_epochs"])


def autologged(config: dict[str, Any]) -> None:
    context = train.get_context()
    if context.get_world_rank() == 0:
        mlflow.set_tracking_uri(config["tracking_uri"])
        mlflow.pytorch.autolog(log_models=False, checkpoint=False)
        start_or_resume_mlflow_run(context.get_trial_id(), "demo-project")
    history = train_with(None, config["num_epochs"])
    if context.get_world_rank() == 0:
        # It sends in batches; a kill loses the last one.
        log_missing(history)
        mlflow.end_run()


def main() -> None:
    parser = launch.parser(__doc__, name="lightning-mlflow")
    parser.add_argument("--tracking-uri", help="of a server; else a database in the storage")
    parser.add_argument("--autolog", action="store_true")
    given = parser.parse_args()
    uri = given.tracking_uri or launch.mlflow_database(given)
    launch.fit(autologged if given.autolog else train_func, given, tracking_uri=uri)


if __name__ == "__main__":
    main()
