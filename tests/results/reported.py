"""A run whose trials have reported, and the results of its trials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.results.result import Result
from tests.rig.runs.recorded import RecordedExperiment


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path / "exp")
    yield recorded
    recorded.close()


def result_of(run: RecordedExperiment, trial_id: str) -> Result:
    return Result.of_trial(run.trial(trial_id), run.location, run.layout)


def epochs(run: RecordedExperiment, *losses: Any, checkpoint: str = "committed") -> str:
    """A finished trial that reported these losses, each with a checkpoint."""
    trial_id = run.begin({"lr": 0.1, "net": {"width": 8}}, "0_lr=0.1")
    for loss in losses:
        acc = 1 - loss if isinstance(loss, float) else None
        run.report(trial_id, {"loss": loss, "eval": {"acc": acc}}, checkpoint=checkpoint)
    run.finish(trial_id)
    run.write_files()
    return trial_id
