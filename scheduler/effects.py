"""What the machine asks the shell to do. Each may be performed again after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from holdfast.dataclass import dataclass
from holdfast.scheduler.events import EndReason
from holdfast.scheduler.verdict import Verdict
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.resources import Allocation
from holdfast.trial.trial import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggest:
    """Ask the search for trial number `index`; answer with Suggested or SearchEnded."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start a worker for this attempt; answer with Started or Raised, and Exited in the end.

    `reuse` names the trial whose worker, now idle, may serve. With an `origin` the trial is first
    given a copy of that checkpoint, which is another trial's: answer with Adopted before.
    """

    trial_id: str
    attempt: int
    allocation: Allocation
    checkpoint: CheckpointRecord | None
    reuse: str | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Let the worker's `report()` return."""

    trial_id: str
    attempt: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStopper:
    """Show the trial's newest row to the user's stop function; answer with StopperAnswered."""

    trial_id: str
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskScheduler:
    """Have the scheduler ask the user's code; answer with SchedulerAnswered."""

    trial_id: str
    question: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """After so many seconds answer with WaitEnded."""

    trial_id: str
    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Tell a worker that it will be ended soon, so that it saves what it has and ends."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """End a worker that may be in the middle of user code: ask, wait, kill.

    `after_step` leaves it first the time to end its iteration, and to save it.
    """

    trial_id: str
    attempt: int
    after_step: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """End an idle worker that was kept for reuse."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Make a staged checkpoint durable and persistent; answer with Committed."""

    trial_id: str
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Remove a checkpoint's files once the journal up to here is on the disk."""

    trial_id: str
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Tell the user what may be a mistake; the run goes on."""

    text: str


FinishReason = Literal["done", EndReason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Nothing is left to do. `reason` is "done", or that of EndOrdered; `message` explains."""

    reason: FinishReason
    message: str = ""


Effect = (
    Suggest
    | Launch
    | Reply
    | AskStopper
    | AskScheduler
    | Wait
    | Preempt
    | Halt
    | Release
    | Commit
    | Discard
    | Warn
    | Finish
)
