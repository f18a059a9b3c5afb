"""`train.load`: the result of an earlier training, without its code."""

from __future__ import annotations

import os
from typing import Any

from holdfast.experiment.api import load_experiment
from holdfast.experiment.results.result import Result
from holdfast.experiment.results.short_errors import short_errors
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig


@short_errors
def load(
    path: str | os.PathLike[str] | RunConfig,
    storage_filesystem: Any = None,
    *,
    run: int | None = None,
) -> Result:
    """The result of the training at `path`, as a trainer's `fit()` returned it.

    If the training failed, its `error` says why; nothing is raised. The arguments are those of
    `tune.load`, which also reads a training, as a grid of one result.

    Raises InvalidConfig for an experiment of several trials, and what `tune.load` raises.
    """
    results = load_experiment.load(path, storage_filesystem, run=run)
    if len(results) != 1:
        raise InvalidConfig(
            f"{results.experiment_path} holds {len(results)} trials, not one training: use "
            f"tune.load"
        )
    return results[0]
