"""Creates experiments on the disk as a run would have left them, in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.search_space.description import describe
from tests.rig.recorded import RecordedExperiment

SPACE: Mapping[str, Any] = {"width": 1}


def prepare(root: Path, *, done: int, rows: int, unfinished: int = 0, more: int = 0) -> None:
    """Create an experiment with `done` finished trials of `rows` rows, and `more` not yet created.

    The unfinished ones run, half-way, each with a committed checkpoint. Everything that a run has
    by then exists: the journal, every trial's files, a snapshot.
    """
    total = done + unfinished + more
    recorded = RecordedExperiment(
        root,
        num_samples=total,
        resources=PlacementGroupFactory([{"CPU": 1}]),
        space=describe(SPACE),
        options={"verbose": 0},
    )
    for _ in range(done):
        trial_id = recorded.begin(dict(SPACE))
        for row in range(rows):
            recorded.report(trial_id, {"loss": 1.0 / (row + 1), "acc": 0.25})
        recorded.finish(trial_id)
    for _ in range(unfinished):
        trial_id = recorded.begin(dict(SPACE))
        for row in range(rows // 2):
            last = row == rows // 2 - 1
            recorded.report(trial_id, {"loss": 1.0}, checkpoint="committed" if last else "")
    recorded.close()
    settings = ProjectorSettings(tensorboard=False, remembers_clean=True)
    projector = Projector(recorded.layout, settings)
    projector.catch_up()
    projector.sweep()
    projector.snapshot()
