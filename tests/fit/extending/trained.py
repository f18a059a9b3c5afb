"""A trainable that counts epochs, and what a run of it has left."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.results.reading import load_experiment
from holdfast.trial.trial import Trial


def saved(epoch: int) -> tune.Checkpoint:
    folder = tempfile.mkdtemp()
    Path(folder, "epoch").write_text(str(epoch))
    return tune.Checkpoint.from_directory(folder)


def epochs() -> range:
    """Train from after the checkpoint, further than any bound."""
    start = 0
    if found := tune.get_checkpoint():
        with found.as_directory() as folder:
            start = int(Path(folder, "epoch").read_text())
    return range(start + 1, 100)


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
