"""The messages of a worker as types, checked before they become facts in the journal.

A worker runs the user's code, which can write anything to its socket. `read`, the functions below
and `AttemptMessages` raise ValueError, naming the field, for a message that no worker of holdfast
sends. The caller then fails that one trial.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.job import Assignment
from holdfast.experiment.worker.metrics import DEEPEST, LONGEST_LIST, LONGEST_TEXT
from holdfast.names import shown
from holdfast.schema import Between, Count, Messages, Stored, decode, maker
from holdfast.text import errors
from holdfast.trial.errors import Failure
from holdfast.trial.events import Reported, Saved, Started
from holdfast.trial.trial import CheckpointRecord, Validation, evolve_record

# A checkpoint's number may skip a few folders that readers hold, and those of the script's own.
_FURTHEST_INDEX = 100_000
_LONGEST_NAME = 255
# The worker joins lines up to this many characters.
_LONGEST_LOG = 1 << 18
_LONGEST_KEY = 1 << 16
# Of a text that ranks pass to each other: 64 KiB as base64.
LONGEST_GATHERED = 1 << 17

_SIMPLE = frozenset({float, int, bool, type(None)})


def exactly(value: object, name: str, expected: int) -> int:
    if type(value) is not int or value != expected:
        raise ValueError(f"{name} must be {expected}, not {shown(value)}")
    return value


def short_text(value: object, name: str, longest: int = _LONGEST_NAME) -> str:
    """One line that a terminal may show."""
    if type(value) is not str or len(value) > longest:
        what = shown(value)
        raise ValueError(f"{name} must be text of at most {longest} characters, not {what}")
    if not value.isprintable() and any(
        unicodedata.category(letter).startswith("C") for letter in value
    ):
        raise ValueError(f"{name} has control characters: {shown(value)}")
    return value


def long_text(value: object, name: str, longest: int = errors.LONGEST_TEXT) -> str:
    """Text of several lines, shortened."""
    if type(value) is not str:
        raise ValueError(f"{name} must be text, not {shown(value)}")
    return errors.shortened(value, longest)


def validated(status: object, found: object) -> tuple[Validation, dict[str, Any]]:
    """The result of a validation, and its metrics."""
    if type(status) is not str or status not in (*Validation,) or status == Validation.NONE:
        raise ValueError(f"not the result of a validation: {shown(status)}")
    return Validation(status), _metrics(found)


def _metrics(value: object) -> dict[str, Any]:
    """Metrics as `plain_metrics` makes them: plain values with text as keys."""
    if type(value) is not dict:
        raise ValueError(f"metrics must be a dict, not {shown(value)}")
    for key, part in value.items():
        if type(key) is not str or type(part) not in _SIMPLE:
            _check_plain(value, "metrics", 0)
            break
    return value


def _check_plain(value: object, name: str, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"{name} is nested more than {DEEPEST} deep")
    kind = type(value)
    if kind in _SIMPLE:
        return
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"{name} is a text of {len(value):,} characters")
    elif isinstance(value, list):
        if len(value) > LONGEST_LIST:
            raise ValueError(f"{name} is a list of {len(value):,} values")
        for part in value:
            _check_plain(part, name, depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str) or len(key) > _LONGEST_KEY:
                raise ValueError(f"a key of {name} must be text, not {shown(key)}")
            _check_plain(part, f"{key:.60}", depth + 1)
    else:
        raise ValueError(f"{name} is a {kind.__name__}, which is not a plain value")


# Until the beginning of the year 9999: `datetime` has no later time in every time zone.
Timestamp = Annotated[float, Between(0, 253_370_764_800.0)]
# At most 3,000 years of training.
Duration = Annotated[float, Between(0, 1e11)]
ShortText = Annotated[str, Stored(lambda value: short_text(value, "it"))]
TypeName = Annotated[str, Stored(lambda value: short_text(value, "it", 1024))]
LongText = Annotated[str, Stored(lambda value: long_text(value, "it"))]
LogText = Annotated[str, Stored(lambda value: long_text(value, "it", _LONGEST_LOG))]
Metrics = Annotated[Mapping[str, Any], Stored(_metrics)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted:
    """The worker runs the attempt, in process `pid` of the machine `hostname`."""

    name: Literal["started"]
    attempt: Count
    pid: Count
    hostname: ShortText
    node_ip: ShortText


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """A call of `report()`, which waits for the answer."""

    name: Literal["report"]
    attempt: Count
    iteration: Count
    metrics: Metrics
    timestamp: Timestamp
    time_this_iter_s: Duration
    time_total_s: Duration
    checkpoint: CheckpointRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSaved:
    """A checkpoint of the last reported iteration, without a row."""

    name: Literal["saved"]
    attempt: Count
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOutput:
    """Lines that the trial has printed."""

    name: Literal["log"]
    stream: Literal["stdout", "stderr"]
    text: LogText


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOver:
    """User code returned or was stopped. "pruned": it raised Optuna's TrialPruned. "unfit": the
    reused worker cannot run the attempt."""

    name: Literal["returned", "pruned", "stopped", "preempted", "unfit"]
    attempt: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureOfCode:
    """A `Failure` as the worker describes it. Its `pid`, `node` and `rank` are ignored: the
    controller knows them better."""

    kind: Literal["user", "setup"]
    type_name: TypeName
    message: LongText
    traceback: LongText = ""
    pid: Any = None
    hostname: ShortText = ""
    node: Any = None
    rank: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRaised:
    """User code raised, or the trial's directory could not be prepared."""

    name: Literal["raised"]
    attempt: Count
    failure: FailureOfCode


WorkerMessage = (
    WorkerStarted | WorkerReport | WorkerSaved | WorkerOutput | AttemptOver | AttemptRaised
)
MESSAGES = Messages(
    {
        "started": WorkerStarted,
        "report": WorkerReport,
        "saved": WorkerSaved,
        "log": WorkerOutput,
        **dict.fromkeys(("returned", "pruned", "stopped", "preempted", "unfit"), AttemptOver),
        "raised": AttemptRaised,
    }
)


_reported = maker(Reported)  # in a third of the time of its `__init__`


def checkpoint(plain: object) -> CheckpointRecord:
    known: CheckpointRecord = decode(CheckpointRecord, plain)
    return known


def record(
    known: CheckpointRecord,
    *,
    attempt: int,
    iteration: int,
    least_index: int,
    is_part: bool = False,
) -> CheckpointRecord:
    """The record of a checkpoint of this attempt and iteration.

    `is_part`: it is a rank's part, which has no number yet.
    """
    exactly(known.iteration, "the checkpoint's iteration", iteration)
    exactly(known.attempt, "the checkpoint's attempt", attempt)
    most_index = least_index + (0 if is_part else _FURTHEST_INDEX)
    if not least_index <= known.index <= most_index:
        raise ValueError(f"index must be from {least_index} to {most_index}, not {known.index}")
    # Only the controller decides these.
    return evolve_record(
        known, score=None, committed=False, metrics=None, validation=Validation.NONE
    )


def failure(known: FailureOfCode, *, pid: int, node: str) -> Failure:
    """The failure that user code raised in the process `pid` of this node."""
    return Failure(
        kind=known.kind,
        type_name=known.type_name,
        message=known.message,
        traceback=known.traceback,
        pid=pid or None,
        hostname=known.hostname,
        node=node,
    )


def clashes(value: object, ranks: int) -> dict[str, list[int]]:
    """Names that files of several ranks have, with these ranks."""
    if type(value) is not dict:
        raise ValueError(f"clashes must be a dict, not {shown(value)}")
    return {
        long_text(name, "a file's name", 4096): _ranks(found, ranks)
        for name, found in value.items()
    }


def _ranks(value: object, ranks: int) -> list[int]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"ranks must be a list, not {shown(value)}")
    for rank in value:
        if type(rank) is not int or not 0 <= rank < ranks:
            raise ValueError(f"rank must be a whole number below {ranks}, not {shown(rank)}")
    return value


class AttemptMessages:
    """One attempt, as its worker has told it so far. Each method raises ValueError for a claim
    that contradicts this."""

    def __init__(self, assignment: Assignment, *, is_rank: bool) -> None:
        """`is_rank`: the worker stages parts of checkpoints, without a number."""
        self.has_started = False
        self._assignment = assignment
        self._is_rank = is_rank
        self._iteration = assignment.iteration
        self._next_checkpoint = assignment.next_checkpoint

    def require_start(self) -> None:
        if not self.has_started:
            raise ValueError("it had not started")

    def started(self, said: WorkerStarted) -> Started:
        if self.has_started:
            raise ValueError("it had started")
        self.has_started = True
        return Started(
            trial_id=self._assignment.trial_id,
            attempt=self._assignment.attempt,
            pid=said.pid,
            hostname=said.hostname,
            node_ip=said.node_ip,
            nodes=self._assignment.node_names,
        )

    def count(self, said: WorkerReport) -> int:
        """Count a report, whether or not it is refused. Returns its iteration."""
        self.require_start()
        following = self._iteration + 1
        if said.iteration != following:
            exactly(said.iteration, "the iteration", following)
        self._iteration = following
        return following

    def reported(self, said: WorkerReport) -> Reported:
        return _reported(
            trial_id=self._assignment.trial_id,
            attempt=self._assignment.attempt,
            iteration=self.count(said),
            metrics=said.metrics,
            timestamp=said.timestamp,
            time_this_iter_s=said.time_this_iter_s,
            time_total_s=said.time_total_s,
            checkpoint=said.checkpoint and self._record(said.checkpoint),
            has_room=False,
        )

    def saved(self, said: WorkerSaved) -> Saved:
        self.require_start()
        return Saved(
            trial_id=self._assignment.trial_id,
            attempt=self._assignment.attempt,
            checkpoint=self._record(said.checkpoint),
        )

    def _record(self, known: CheckpointRecord) -> CheckpointRecord:
        """The record of a checkpoint of the newest iteration."""
        checked = record(
            known,
            attempt=self._assignment.attempt,
            iteration=self._iteration,
            least_index=0 if self._is_rank else self._next_checkpoint,
            is_part=self._is_rank,
        )
        self._next_checkpoint = checked.index + 1
        return replace(checked, node=self._assignment.node.name)
