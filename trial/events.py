"""The events of one trial.

Events with `attempt` come from a worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.schema import Count, Moment, Ordinal, PlainName
from holdfast.trial.errors import Failure
from holdfast.trial.resources import PlacementGroupFactory, Usage
from holdfast.trial.trial import Budget, CheckpointRecord, Origin, RungVisit, Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The machine gave the trial its resources and asked for a worker.

    `bundles` is the number that an elastic trial got; it may be less than it asked for.
    """

    trial_id: str
    bundles: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The worker runs in the trial's directory and is about to call the user's code.

    `nodes` are those of all its workers, rank 0's first; none on the controller's machine.
    """

    trial_id: str
    attempt: Count
    pid: Count
    hostname: str
    node_ip: str
    nodes: Sequence[PlainName] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """User code reported. `iteration` counts from 1 over the trial's life.

    `metrics` are the user's, as plain data. Times are seconds measured in the worker; `timestamp`
    is its wall clock. `checkpoint` is staged: complete and renamed into place. `has_room`: another
    worker of an elastic trial could start now.
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
    """A checkpoint without a report: a class trainable saves one at its end or when it pauses.

    While an attempt starts: a checkpoint that a restore has found.
    """

    trial_id: str
    attempt: Count
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A clone has its own copy of the checkpoint that it starts from."""

    trial_id: str
    attempt: Count
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOrdered:
    """A bound, a stopper, the scheduler or the budget ended the trial; its worker must end."""

    trial_id: str
    stop: Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class RungReached:
    """The scheduler has judged the trial at a rung, or lets it wait there."""

    trial_id: str
    visit: RungVisit


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOrdered:
    """The scheduler pauses the trial, which gives up its worker. `why` is for people."""

    trial_id: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaused:
    """A paused trial may run again, from its newest checkpoint."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A person pauses the trial: as soon as it has no worker, it waits."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldEnded:
    """The person resumes the trial."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A person has written a note on the trial, which replaces an earlier one."""

    trial_id: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloned:
    """The scheduler restarts the trial from another trial's checkpoint; `at` is in seconds since
    1970."""

    trial_id: str
    origin: Origin
    config: Mapping[str, Any]
    at: Moment = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The scheduler changes the trial's config or resources; None keeps them.

    A change before the first attempt counts as part of the trial's specification.
    """

    trial_id: str
    config: Mapping[str, Any] | None = None
    resources: PlacementGroupFactory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The user's function returned, or unwound after the order to stop.

    `pruned`: it ended by Optuna's `TrialPruned`, to stop its own trial early.
    """

    trial_id: str
    attempt: Count
    pruned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an attempt has used so far, or in total. It replaces what was known of the attempt."""

    trial_id: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintViolated:
    """The search says that the trial's results violate one of its constraints: the trial cannot be
    the best."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """This many lines of a command looked like reports and could not be read."""

    trial_id: str
    lines: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """The attempt failed and the budget allows another.

    `budget` names the counter that grows; None if none does.
    """

    trial_id: str
    failure: Failure
    budget: Budget | None = Budget.FAILURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """One of several workers was lost, and the others continue without it.

    No replacement is expected before `until` (seconds since 1970).
    """

    trial_id: str
    failure: Failure
    until: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Errored:
    """The attempt failed, and no other will follow."""

    trial_id: str
    failure: Failure
    budget: Budget = Budget.FAILURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The run ended while the trial ran, or a person pauses the trial at once.

    `why` is for people. `ended_at`: when the attempt ended (seconds since 1970), if that was
    before: a restore found the trial unfinished. `is_pause`: a person pauses it.
    """

    trial_id: str
    why: str = ""
    ended_at: Moment | None = None
    is_pause: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A restore resumes a trial that had ended; `from_scratch` forgets its checkpoints."""

    trial_id: str
    from_scratch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A checkpoint's manifest is written and, with remote storage, confirmed there."""

    trial_id: str
    index: Ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A checkpoint is superseded or broken, and is removed from the trial's record."""

    trial_id: str
    index: Ordinal


TrialEvent = (
    Launched
    | Started
    | Reported
    | Saved
    | Adopted
    | StopOrdered
    | RungReached
    | PauseOrdered
    | Unpaused
    | Held
    | HoldEnded
    | Noted
    | Cloned
    | Changed
    | Returned
    | Measured
    | ConstraintViolated
    | Unread
    | Retried
    | Shrunk
    | Errored
    | Interrupted
    | Reopened
    | Committed
    | Dropped
)
