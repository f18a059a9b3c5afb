"""Loggers, trackers and reporters of holdfast as users make them, and as files must give them
back.

    python tests/data/watching_objects.py tests/data/watching-2
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.air.integrations.comet import CometLoggerCallback
from holdfast.air.integrations.mlflow import MLflowLoggerCallback
from holdfast.air.integrations.wandb import WandbLoggerCallback
from holdfast.tune import logger

SECRET = "hunter2"


def reporters() -> list[Any]:
    terminal = tune.CLIReporter(
        metric_columns={"loss": "the loss"}, metric="loss", mode="min", sort_by_metric=True
    )
    terminal.add_metric_column("accuracy", "acc")
    terminal.add_parameter_column("lr")
    return [terminal, tune.JupyterNotebookReporter(overwrite=False, max_progress_rows=3)]


def trackers() -> list[Any]:
    return [
        MLflowLoggerCallback(
            f"http://me:{SECRET}@tracks.example:5000",
            experiment_name="kelp",
            tags={"team": "sea"},
            tracking_token=SECRET,
            save_artifact=True,
        ),
        WandbLoggerCallback(
            "kelp", "group", None, SECRET, excludes=["noise"], log_config=True, mode="offline"
        ),
        CometLoggerCallback(False, ["sea"], api_key=SECRET, project_name="kelp"),
    ]


def objects() -> dict[str, Any]:
    """By field of the file."""
    loggers = [
        logger.JsonLoggerCallback(),
        logger.CSVLoggerCallback(),
        logger.TBXLoggerCallback(),
    ]
    return {type(one).__name__: one for one in [*loggers, *trackers(), *reporters()]}


def main() -> None:
    from holdfast.experiment.user_objects.stored_objects import stored
    from holdfast.experiment.user_objects.tuner_file import write

    folder = Path(sys.argv[1])
    folder.mkdir()
    write(folder / "tuner.pkl", {name: stored(one, name) for name, one in objects().items()})


if __name__ == "__main__":
    main()
