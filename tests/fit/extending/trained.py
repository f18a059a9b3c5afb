"""A trainable that counts epochs, and what a run of it has left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.results.reading import load_experiment
from holdfast.trial.trial import Trial
from tests.rig.epochs import resumed, saved


def epochs() -> range:
    """Train from after the checkpoint, further than any bound."""
    return range(resumed() + 1, 100)


def train(config: dict[str, Any]) -> None:
    for epoch in epochs():
        tune.report({"epoch": epoch, "model": config["model"].name}, checkpoint=saved(epoch))


def column(result: tune.Result, name: str) -> list[Any]:
    assert result.metrics_dataframe is not None
    return list(result.metrics_dataframe[name])


def newest(results: tune.ResultGrid, name: str) -> list[Any]:
    return [(result.metrics or {})[name] for result in results]


def trials_in(path: Path) -> list[Trial]:
    return list(load_experiment(path).machine.trials.values())
