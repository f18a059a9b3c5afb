"""Creates experiments on the disk as a run would have left them, in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.user_objects.stored_objects import stored
from holdfast.experiment.user_objects.tuner_file import write
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.search_space.description import describe
from tests.rig.runs.recorded import RecordedExperiment

SPACE: Mapping[str, Any] = {"width": 1}


def prepare(
    root: Path,
    *,
    done: int,
    rows: int,
    unfinished: int = 0,
    more: int = 0,
    asha: bool = False,
) -> None:
    """Create an experiment with `done` finished trials of `rows` rows, and `more` not yet created.

    The unfinished ones run, half-way, each with a committed checkpoint. Everything that a run has
    by then exists: the journal, every trial's files, a snapshot. With `asha`, ASHA has judged the
    trials: each is better than all before it, so that none stops early.
    """
    total = done + unfinished + more
    policy = ASHAScheduler(max_t=rows + 1) if asha else None
    spec: dict[str, Any] = (
        {"metric": "loss", "mode": "min", "scheduler": "ASHAScheduler"} if asha else {}
    )
    recorded = RecordedExperiment(
        root,
        num_samples=total,
        resources=PlacementGroupFactory([{"CPU": 1}]),
        space=describe(SPACE),
        options={"verbose": 0},
        policy=policy,
        **spec,
    )
    if asha:
        write(recorded.layout.tuner, {"scheduler": stored(policy, "the scheduler")})
    for trial in range(done):
        trial_id = recorded.begin(dict(SPACE))
        for row in range(rows):
            recorded.report(trial_id, {"loss": 1.0 / (row + trial + 1), "acc": 0.25})
        recorded.finish(trial_id)
    for _ in range(unfinished):
        trial_id = recorded.begin(dict(SPACE))
        for row in range(rows // 2):
            last = row == rows // 2 - 1
            recorded.report(trial_id, {"loss": 0.0}, checkpoint="committed" if last else "")
    recorded.close()
    settings = ProjectorSettings(tensorboard=False, remembers_clean=True)
    projector = Projector(recorded.layout, settings)
    projector.catch_up()
    projector.sweep()
    projector.snapshot()
