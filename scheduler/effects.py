"""Effects: the machine's orders to the shell. After a crash, an order may be performed again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from holdfast.dataclass import dataclass
from holdfast.errors import Remedy
from holdfast.scheduler.events import EndReason, Suggested
from holdfast.trial.resources import Allocation
from holdfast.trial.trial import CheckpointRecord, Origin, TrialSpec


class Verdict(StrEnum):
    """The answer to `report()`. On PAUSE and SAVE a class trainable saves a checkpoint."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"
    SAVE = "save"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggest:
    """Ask the search for a trial, when there are `index`; answer with Suggested or SearchEnded.

    With a `config`, make a trial of these values, which a person has added; answer with Suggested
    or ConfigRefused. With `again`, make a trial of these settings with an id and a folder of its
    own; answer with Suggested. The search may be asked for a trial of its own at the same time.

    If the search has made the next trial already, `known` is the answer. If no worker is free for
    it when the answer comes, answer with SuggestedAhead instead, and not at all if the search has
    none now, or no more: it is asked again when one is free.
    """

    index: int
    config: Mapping[str, Any] | None = None
    again: TrialSpec | None = None
    known: Suggested | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start a worker for this attempt; answer with Started or Raised, and finally with Exited.

    `reuse` names a trial whose worker is idle and may serve. With an `origin`, the trial first
    gets a copy of that checkpoint of another trial: answer with Adopted before Started.
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
    """Call the user's stop function with the trial's newest row; answer with StopperAnswered."""

    trial_id: str
    attempt: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskScheduler:
    """Call the scheduler's `answer`, which runs the user's code; answer with SchedulerAnswered."""

    trial_id: str
    question: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Answer with WaitEnded after `seconds`."""

    trial_id: str
    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Warn a worker that it will be stopped soon, so that it saves a checkpoint and ends; `why` is
    for the user."""

    trial_id: str
    attempt: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Stop a worker that may be running user code: ask, wait, kill.

    With `after_step`, it may first finish its iteration and save.
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
    """Hash a staged checkpoint, fsync it and upload it; answer with Committed."""

    trial_id: str
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Delete a checkpoint's files, after an fsync of the journal up to this event."""

    trial_id: str
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Show the user a warning about a likely mistake; the run continues."""

    text: str


FinishReason = Literal["done", EndReason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run is over. `reason` is "done", or that of EndOrdered; `message` and `remedy` explain
    it."""

    reason: FinishReason
    message: str = ""
    remedy: Remedy | None = None


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
