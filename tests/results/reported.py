"""A run whose trials have reported, the results of its trials, and a page that is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.records.view import ExperimentView
from holdfast.results.page.followed import FollowedExperiment
from holdfast.results.reading import KeptRecords
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


class Watched:
    """What a page shows of the run that `find` reads. A look is due whenever a test looks."""

    def __init__(
        self,
        find: Callable[[KeptRecords], ExperimentView],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.at = 0.0
        self._find, self._now = find, now
        self.made: FollowedExperiment | None = None

    @property
    def followed(self) -> FollowedExperiment:
        if self.made is None:
            self.made = FollowedExperiment(
                "run", self._find, clock=lambda: self.at, cpu=lambda: 0.0, now=self._now
            )
        return self.made

    def look(self) -> int:
        self.at += 10.0
        return self.followed.look().version

    def news(self, version: int) -> dict[str, dict[str, Any]]:
        """The trials that have changed since, by id."""
        self.look()
        changed = self.followed.changed_since(version)
        assert changed is not None, "the page must read everything again"
        return {one["trial_id"]: one for one in changed["trials"]}

    def close(self) -> None:
        if self.made is not None:
            self.made.close()
