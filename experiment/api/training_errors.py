"""The errors with which a training ends."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.experiment.worker.training.preemption import PreemptionInfo
from holdfast.trial.errors import TrialError, TuneError


class TrainingFailedError(TuneError, RuntimeError):
    """The training ended with an error, the `__cause__`. The message says how to resume it."""


class WorkerGroupError(TrainingFailedError):
    """A worker failed. `worker_failures` has its error by its rank; the text of that error has
    those of other ranks, too."""

    def __init__(self, error_message: str, worker_failures: Mapping[int, Exception]) -> None:
        super().__init__(error_message)
        self.worker_failures = dict(worker_failures)

    def __reduce__(self) -> tuple[type[WorkerGroupError], tuple[str, dict[int, Exception]]]:
        return type(self), (str(self), self.worker_failures)


class NCCLHangError(WorkerGroupError):
    """For `except` clauses of Ray scripts: holdfast does not raise it. A rank that hangs in NCCL
    ends with a WorkerGroupError, after torch's own timeout or FailureConfig(hang_timeout_s=)."""


class ControllerError(TrainingFailedError):
    """For `except` clauses of Ray scripts: holdfast does not raise it. Where a run itself fails,
    `fit()` raises that error (a TuneError, StorageError and so on)."""

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(f"the training failed: {controller_failure}")
        self.controller_failure = controller_failure


class PreemptionError(TrainingFailedError):
    """The training was preempted more often than its FailureConfig allows. `preemption_info` has
    no deadline then: it is over. `drain_timed_out` is False: the workers have ended."""

    def __init__(self, preemption_info: PreemptionInfo, drain_timed_out: bool = False) -> None:
        super().__init__(f"the training was preempted: ranks {preemption_info.preempted_ranks}")
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out


def failed(error: TrialError, text: str) -> TrainingFailedError:
    """The error of a training whose trial ended with `error`."""
    failure = error.failure
    if failure.kind == "preempted":
        ranks = [] if failure.rank is None else [failure.rank]
        preempted = PreemptionError(PreemptionInfo(None, {failure.node: ranks}))
        preempted.args = (text,)
        return preempted
    return WorkerGroupError(text, {failure.rank or 0: error})
