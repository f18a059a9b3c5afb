"""What a trial may know of itself: `get_context`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.experiment.session import Session, current
from holdfast.trial.resources import PlacementGroupFactory


def get_context() -> TuneContext:
    """Facts about the running trial. Raises NotInTrial outside of a trial."""
    return TuneContext(current("tune.get_context()"))


class TrainContext:
    """Facts about the trial that this process runs, alone or as one rank of several."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_trial_id(self) -> str:
        """The same over all attempts and restores: a key for trackers."""
        return self._session.assignment.trial_id

    def get_trial_name(self) -> str:
        return self._session.assignment.trial_name

    def get_trial_dir(self) -> str:
        """The trial's local directory, which is the working directory unless turned off."""
        return str(self._session.trial_dir)

    def get_trial_resources(self) -> PlacementGroupFactory:
        return self._session.assignment.resources

    def get_experiment_name(self) -> str:
        return self._session.job.experiment_name

    def get_storage(self) -> str:
        """Where the experiment is persisted, without credentials."""
        return self._session.job.storage

    def get_original_working_dir(self) -> str:
        """The directory that the script was started in."""
        return self._session.job.working_dir

    def get_attempt(self) -> int:
        """How often this trial was started, from 1."""
        return self._session.assignment.attempt

    def preemption_requested(self) -> bool:
        """Whether this trial is to be taken away (SIGTERM): report a checkpoint now.

        The report does not return then. After `FailureConfig.preemption_grace_s` seconds without
        one the trial is ended as it is. Either way it starts again from its newest checkpoint.
        """
        return self._session.is_preempted

    def get_metadata(self) -> Mapping[str, Any]:
        return dict(self._session.job.metadata)

    def get_world_size(self) -> int:
        """How many workers train this trial together."""
        return self._session.assignment.world_size

    def get_world_rank(self) -> int:
        """Which of them this one is, from 0."""
        return self._session.assignment.rank

    def get_local_rank(self) -> int:
        """Which of those on this machine."""
        return self._session.assignment.rank

    def get_local_world_size(self) -> int:
        """How many of them are on this machine."""
        return self._session.assignment.world_size

    def get_node_rank(self) -> int:
        return 0


class TuneContext(TrainContext):
    """The same, by the name that scripts for tune have for it."""
