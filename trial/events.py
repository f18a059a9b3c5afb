"""What happens to one trial, as facts.

Those with `attempt` come from a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.bounds import Count, Moment, Ordinal
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.errors import Failure
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import Budget, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The machine gave the trial its resources and asked for a worker.

    `bundles` is how many it gave where it may give fewer than there are.
    """

    trial_id: str
    bundles: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The worker is up, in the trial's directory, about to call the user's code."""

    trial_id: str
    attempt: Count
    pid: Count
    hostname: str
    node_ip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """User code reported. `iteration` counts from 1 over the trial's life.

    `metrics` are the user's, made plain; times are seconds measured in the worker, `timestamp` is
    its wall clock. `checkpoint` is staged: complete and renamed into place. `has_room`: of an
    elastic trial, another worker could start now.
    """

    trial_id: str
    attempt: Count
    iteration: Count
    metrics: Mapping[str, Any]
    timestamp: Moment
    time_this_iter_s: float
    time_total_s: float
    checkpoint: CheckpointRecord | None = None
    has_room: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint without a report: made at the end of a class trainable or when it pauses.

    While an attempt begins: one that a restore has found again.
    """

    trial_id: str
    attempt: Count
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A clone has a copy of the checkpoint that it begins from, as one of its own."""

    trial_id: str
    attempt: Count
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOrdered:
    """A bound, a stopper, the scheduler or the budget ended the trial; its worker is told."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOrdered:
    """The scheduler wants the trial to give up its worker and wait."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaused:
    """A paused trial may run again, from its newest checkpoint."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloned:
    """The scheduler wants the trial to begin again from another one's checkpoint."""

    trial_id: str
    origin: Origin
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The scheduler wants the trial to go on otherwise; None leaves what there is.

    What it wants before the first attempt counts as what the trial was asked to be.
    """

    trial_id: str
    config: Mapping[str, Any] | None = None
    resources: PlacementGroupFactory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The user's function returned, or unwound after it was told to stop."""

    trial_id: str
    attempt: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """The attempt failed and the budget allows another.

    `budget` names the trial's count that grows, None where nothing counts.
    """

    trial_id: str
    failure: Failure
    budget: Budget | None = Budget.FAILURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A worker was lost of several, and the others go on without it.

    Until that time (seconds since the epoch) no other is expected in its place.
    """

    trial_id: str
    failure: Failure
    until: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Errored:
    """The attempt failed and there will be no other."""

    trial_id: str
    failure: Failure
    budget: Budget = Budget.FAILURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The experiment stopped under the trial: Ctrl-C, or a restore found it unfinished."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A restore takes up a trial that had ended; `from_scratch` forgets its checkpoints."""

    trial_id: str
    from_scratch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A checkpoint's manifest is written and, where storage is remote, confirmed."""

    trial_id: str
    index: Ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A checkpoint is superseded or was found broken: no record names it any more."""

    trial_id: str
    index: Ordinal


TrialEvent = (
    Launched
    | Started
    | Reported
    | Saved
    | Adopted
    | StopOrdered
    | PauseOrdered
    | Unpaused
    | Cloned
    | Changed
    | Returned
    | Retried
    | Shrunk
    | Errored
    | Interrupted
    | Reopened
    | Committed
    | Dropped
)
