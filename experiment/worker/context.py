"""What user code asks of the trial that it runs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.experiment.worker.session import Session, current
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.checkpoint import CheckpointUploadMode
from holdfast.trial.errors import InvalidMetrics
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
        """The name of the trial, as the progress table and the logs show it."""
        return self._session.assignment.trial_name

    def get_trial_dir(self) -> str:
        """The trial's local directory, which is the working directory unless turned off."""
        return str(self._session.trial_dir)

    def get_trial_resources(self) -> PlacementGroupFactory:
        """The CPUs, GPUs and custom resources that the trial holds."""
        return self._session.assignment.resources

    def get_experiment_name(self) -> str:
        """The name of the experiment: `RunConfig.name`, or the one that holdfast made."""
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
        """A copy of the `metadata` that the trainer got; empty where it got none."""
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
        """Which machine this worker runs on: always 0, because all workers share one."""
        return 0


class TuneContext(TrainContext):
    """What a trial may ask about itself: `TrainContext`, under the name that `tune` has for it."""


def report(
    metrics: Mapping[Any, Any],
    *,
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode | str = CheckpointUploadMode.ASYNC,
) -> None:
    """Report one iteration of the trial, and optionally a checkpoint of it.

    Returns when the row is in the journal on the local disk and the checkpoint is complete beside
    it: no death of any process loses them then. NumPy and torch scalars become numbers, keys
    text, moments ISO text, durations seconds (see `plain_metrics`). The checkpoint's directory is
    copied, unless it came from `staging_directory()`, and may be deleted afterwards.
    `checkpoint_upload_mode` says whether to wait for storage too, or to keep it from there.
    Checkpoints are numbered, in the folders `checkpoint_000000` and so on, so that what a death
    cuts off is known from what is kept: `checkpoint_dir_name` cannot give one another name.

    Raises NotInTrial outside of a trial, InvalidMetrics for values that cannot be stored, and
    TuneError where a SYNC checkpoint does not get to storage (it stays on this machine); unwinds
    the function with a SystemExit when the trial is to stop.
    """
    if checkpoint_dir_name is not None:
        raise InvalidMetrics(
            f"checkpoint_dir_name={checkpoint_dir_name!r}: folders of checkpoints are numbered "
            f"here. Leave it out, and keep the name in the metrics, or in the checkpoint: "
            f"checkpoint.update_metadata({{'name': {checkpoint_dir_name!r}}})"
        )
    current("tune.report()").report(metrics, checkpoint, checkpoint_upload_mode)


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to resume from, or the newest reported since; None where there is none.

    Under `num_to_keep` the one that the trial resumed from stays until a later one is committed,
    soon after its report. What reads from it for longer, as mapped weights do, does so within
    `with checkpoint.as_directory()`: what is open there is not removed.

    Raises NotInTrial outside of a trial.
    """
    return current("tune.get_checkpoint()").checkpoint()


def staging_directory() -> str:
    """A new directory for a checkpoint that `report` will rename instead of copying.

    Write the files there and give `Checkpoint.from_directory(path)` to `report`; afterwards the
    directory is the checkpoint and no longer yours. It is on the trial's own disk, beside its
    checkpoints; one that was never reported is cleared away before the trial runs again.
    Raises NotInTrial outside of a trial.
    """
    return str(current("tune.staging_directory()").staging_directory())
