"""The base of trackers that have one run of their service for each trial."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from holdfast.experiment.trackers.tracker import Tracker
from holdfast.replaced import explained_attribute


class RunPerTrial(Tracker):
    """Begins a trial's run at its first use. A subclass creates `_runs`, by trial id."""

    _runs: dict[str, Any]

    @abstractmethod
    def _begin(self, trial: Any) -> Any:
        """Begin or continue the trial's run."""

    def log_trial_start(self, trial: Any) -> None:
        self._run_of(trial)

    def __getattr__(self, name: str) -> Any:
        return explained_attribute(self, name)

    def __getitem__(self, trial: Any) -> Any:
        """The trial's run of the service, which begins at its first use."""
        return self._run_of(trial)

    @property
    def _trial_experiments(self) -> Self:
        """As Ray's classes keep them: `self._trial_experiments[trial]` is the trial's run."""
        return self

    _trial_runs = _trial_experiments

    def _run_of(self, trial: Any) -> Any:
        run = self._runs.get(trial.trial_id)
        if run is None:
            run = self._runs[trial.trial_id] = self._begin(trial)
        return run


def tag_texts(tags: Mapping[str, str], longest: int) -> list[str]:
    """`["data=v3"]`: tags for a service whose tags have no values."""
    return [f"{name}={value}"[:longest] for name, value in tags.items()]


def newest_checkpoint(trial: Any) -> str | None:
    """The directory of the trial's newest checkpoint. None if there is none, or none any more: the
    tracker process runs behind, and the checkpoint may be superseded and removed by now."""
    folder = None if trial.checkpoint is None else trial.checkpoint.path
    return folder if folder is not None and os.path.isdir(folder) else None
