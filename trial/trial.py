"""A trial: its settings, its checkpoints and its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, ClassVar, Literal

from holdfast.dataclass import dataclass
from holdfast.names import folder_name, plain_name
from holdfast.schema import (
    Count,
    FolderName,
    Moment,
    NodeName,
    Ordinal,
    PlainName,
    Sparse,
    evolver,
)
from holdfast.trial.errors import Failure
from holdfast.trial.resources import (
    ONE_CPU,
    Bundles,
    PlacementGroupFactory,
    Usage,
    usage_of_all,
)
from holdfast.trial.values import Config


class CheckpointUploadMode(StrEnum):
    """How a reported checkpoint reaches storage that is not on this machine.

    ASYNC: `report()` returns when the checkpoint is complete on this machine; the upload runs in
    the background. SYNC: `report()` returns when storage has confirmed the whole checkpoint (with
    storage on this machine: when it is flushed to the disk). NO_UPLOAD: the checkpoint stays on
    this machine, for a restore here; the newest checkpoint in storage is kept as well.
    """

    ASYNC = "ASYNC"
    SYNC = "SYNC"
    NO_UPLOAD = "NO_UPLOAD"


class Validation(StrEnum):
    """What is known of a checkpoint's validation; NONE: nobody asked for one."""

    NONE = "NONE"
    VALIDATED = "VALIDATED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"


_PREFIX = "checkpoint_"
_BLOCK = 100_000


def checkpoint_dirname(index: int) -> str:
    return f"{_PREFIX}{index:06d}"


def number_past(index: int) -> int:
    """The next number for holdfast's checkpoints where a script has a folder of number `index` of
    its own: so far above that its later ones stay free."""
    return first_number(index) + _BLOCK


def first_number(index: int) -> int:
    """The first number that may be of the same series as `index`."""
    return index - index % _BLOCK


def checkpoint_number(dirname: str) -> int | None:
    """The index of the checkpoint in a folder of this name; None if it is not a checkpoint's.

    Users create folders such as `checkpoint_best` and `checkpoint_500` themselves.
    """
    number = dirname.removeprefix(_PREFIX)
    is_number = number != dirname and number.isascii() and number.isdecimal()
    return int(number) if is_number and dirname == checkpoint_dirname(int(number)) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """One reported checkpoint of one trial.

    `index` names its folder and grows by one with each checkpoint of the trial, over all attempts.
    `time_total_s` is the trial's training time up to this checkpoint. `score` is the value of the
    configured attribute; None if it was missing or not finite. `committed` is true once its
    manifest is written and, if storage is remote, confirmed. `node` is where it was written; "" on
    the controller's machine. `metrics` are those of its report, with those of its validation, in
    a trial of a trainer; None in others.
    """

    index: Ordinal
    iteration: Count
    attempt: Count
    files: Count
    size_bytes: Count
    time_total_s: float = 0.0
    score: float | None = None
    committed: bool = False
    upload: CheckpointUploadMode = CheckpointUploadMode.ASYNC
    node: NodeName = ""
    metrics: Mapping[str, Any] | None = None
    validation: Validation = Validation.NONE

    @property
    def stays_here(self) -> bool:
        """True if it is never uploaded to storage that is not on this machine."""
        return self.upload is CheckpointUploadMode.NO_UPLOAD

    @property
    def persisted(self) -> bool:
        """True if storage has it."""
        return self.committed and not self.stays_here

    @property
    def dirname(self) -> str:
        return checkpoint_dirname(self.index)


evolve_record = evolver(CheckpointRecord)


class Status(StrEnum):
    """The state of a trial. `holdfast.trial.lifecycle` has the table of its transitions."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    is_final: bool
    has_worker: bool

    def __init__(self, word: str) -> None:
        # Each event reads these several times, and an attribute costs a tenth of a property.
        self.is_final = word in ("TERMINATED", "ERROR")
        self.has_worker = word in ("STARTING", "RUNNING", "STOPPING")

    # Enum's __hash__ is a Python function, which each lookup in a table of statuses would call.
    __hash__ = str.__hash__


class Budget(StrEnum):
    """The budget that a failure counts against: the name of the trial's counter."""

    FAILURES = "failures"
    LOST_WORKERS = "lost_workers"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTIONS = "preemptions"

    def spent(self, trial: Trial) -> int:
        count: int = getattr(trial, self.value)
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """The settings of a trial; once it has begun, only its resources change, and the config of a
    training.

    `config` holds plain values, and `Ref` or `Opaque` in place of a user's value that is neither a
    number, text nor a container of them. `tag` names the varied parameters, as in `0_lr=0.1`.
    `dirname` is its folder inside the experiment's. `asked` are the distributions, as JSON, of the
    parameters that a function of the user's has asked for in this trial first, or with another
    distribution than before. `is_added`: it runs besides the trials of `num_samples`, because a
    person added it to the running experiment, or because it `confirms` the trial with this id: it
    runs the same config again, and ends at the iteration `trains_until`; 0 for by itself.

    Raises UnsafeName for a `trial_id` or `dirname` that is not one plain name.
    """

    annotations_say_all: ClassVar[bool] = True

    trial_id: PlainName
    index: Count
    name: str
    dirname: FolderName
    config: Config
    tag: str = ""
    resources: Bundles = ONE_CPU
    asked: Mapping[str, str] = field(default_factory=dict)
    is_added: Sparse[bool] = False
    confirms: Sparse[str] = ""
    trains_until: Sparse[Count] = 0

    @property
    def added_by_person(self) -> bool:
        """True if a person added it to the running experiment."""
        return self.is_added and not self.confirms

    def __post_init__(self) -> None:
        # Both become paths, and a user's function or a search algorithm may have chosen them.
        plain_name(self.trial_id, "trial_id")
        folder_name(self.dirname, "dirname")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the current attempt runs: the process of rank 0, and the nodes of all ranks, its own
    first. There are none on the controller's machine."""

    pid: Count = 0
    hostname: str = ""
    node_ip: str = ""
    nodes: Sequence[PlainName] = ()

    @property
    def node(self) -> str:
        """The node of rank 0; "" for the controller's machine."""
        return self.nodes[0] if self.nodes else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The checkpoint of another trial that a clone starts from."""

    trial_id: str
    checkpoint: CheckpointRecord


class StopReason(StrEnum):
    """Why a trial has stopped, in a word.

    FINISHED: its function returned, or it trained as long as it should. PRUNED: a scheduler
    stopped it early, or its function raised Optuna's `TrialPruned`. STOPPED: a scheduler did not
    say whether that was early. STOPPER: a stop condition of the user's own code or of
    `tune.stopper`. BUDGET: the time budget of the run. USER: a person stopped this trial.
    """

    FINISHED = "finished"
    PRUNED = "pruned"
    STOPPED = "stopped"
    STOPPER = "stopper"
    BUDGET = "budget"
    USER = "user"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_early(self) -> bool:
        """True if the trial ended without an error, but had more to do."""
        return self in (
            StopReason.PRUNED,
            StopReason.STOPPED,
            StopReason.STOPPER,
            StopReason.BUDGET,
            StopReason.USER,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a trial ended without an error: `by` names the scheduler or the person that decided it,
    `why` says what was decisive."""

    reason: StopReason
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungVisit:
    """What a scheduler decided at a rung, at the time `at` (seconds since 1970).

    `promoted` says whether the trial continued; None if it waits there, or ended for another
    reason. `value` is its metric there, and `cutoff` what a trial needed then to continue.
    """

    milestone: float
    promoted: bool | None
    value: float | None
    cutoff: float | None
    bracket: Count
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """The trial continued from the checkpoint of another trial, `source`.

    It had trained to `iteration`, and continued from `source_iteration` of the source. `changes`
    has its new values by name (`net/width`), where they differ from its own before.
    """

    source: str
    iteration: Count
    source_iteration: Count
    changes: Config
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt that has ended and that another may follow.

    Times are in seconds since 1970, except `from_time_s` and `to_time_s`: seconds of training, as
    `Trial.time_total_s`. `began_at` is 0 if its worker did not start. It began from the checkpoint
    of `from_iteration` (0: none). `failure` says why it failed, `stop` why its trial had ended
    before a restore reopened it; `why` is a text for all other ends.
    """

    attempt: Count
    began_at: Moment
    ended_at: Moment
    from_iteration: Count
    to_iteration: Count
    from_time_s: float
    to_time_s: float
    end: Literal["failed", "paused", "interrupted", "ended"]
    why: Sparse[str] = ""
    place: Place = Place()
    failure: Failure | None = None
    stop: Stop | None = None

    @property
    def has_reported(self) -> bool:
        return self.to_iteration > self.from_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial at one moment; `lifecycle.advance` returns its successor.

    `attempt` counts starts from 1. `iteration` is that of the newest accepted report of this
    attempt, `resumed_from` the iteration of the checkpoint that it started from (0: none).
    `time_total_s` is the training time of the iterations that count, `time_at_start_s` its value
    when the attempt began. `row` holds the metrics of the last report.

    `failures` counts against `FailureConfig.max_failures`, the next three against their own
    budgets if these are set. For elastic resources, `bundles` is the number of bundles that this
    attempt has; until `shrunk_until` it gets at most `shrunk_to`. `has_room`: the last time it
    saved, there was room for one more bundle. `changed_config` is the config after a scheduler
    changed it. `origin` is the checkpoint that a clone starts from, until it has a copy. `stop` is
    set from the order to stop, or the return of its function, until a restore reopens it. `rungs`
    and `takeovers` are what a scheduler decided about it, in order. `usages` says what each
    attempt has used, as far as that is known; the newest is last. `unread` counts lines of its
    command that looked like reports and could not be read. `began_at` is when the worker of this
    attempt started, and `ended_at` when the attempt ended, in seconds since 1970; 0 before that.
    `attempts` are those that have ended and that another may follow, with this one if it is such;
    of more than 100, the first and the newest.

    `is_held`: a person pauses it. While it runs, it continues until it can be paused; while it is
    PENDING, it does not start until the person resumes it. `note` is a person's text about it.
    `is_infeasible`: its results violate a constraint of the search. `earlier` has the last value
    of the goal if the last report has none.
    """

    spec: TrialSpec
    status: Status = Status.PENDING
    attempt: Count = 0
    iteration: Count = 0
    resumed_from: Count = 0
    time_this_iter_s: float = 0.0
    time_total_s: float = 0.0
    time_at_start_s: float = 0.0
    row: Mapping[str, Any] | None = None
    reported_at: Moment = 0.0
    failures: Count = 0
    lost_workers: Count = 0
    out_of_memory: Count = 0
    preemptions: Count = 0
    error: Failure | None = None
    checkpoints: tuple[CheckpointRecord, ...] = ()
    next_checkpoint: Ordinal = 0
    place: Place = Place()
    bundles: Count = 0
    has_room: bool = False
    shrunk_to: Count = 0
    shrunk_until: float = 0.0
    changed_config: Config | None = None
    origin: Origin | None = None
    stop: Stop | None = None
    rungs: tuple[RungVisit, ...] = ()
    takeovers: tuple[Takeover, ...] = ()
    usages: tuple[Usage, ...] = ()
    began_at: Sparse[Moment] = 0.0
    ended_at: Sparse[Moment] = 0.0
    attempts: tuple[Attempt, ...] = ()
    is_held: Sparse[bool] = False
    note: Sparse[str] = ""
    is_infeasible: Sparse[bool] = False
    unread: Sparse[Count] = 0
    earlier: Sparse[Mapping[str, Any] | None] = None

    @property
    def trial_id(self) -> str:
        return self.spec.trial_id

    @property
    def config(self) -> Mapping[str, Any]:
        """The config of its next or current attempt."""
        return self.spec.config if self.changed_config is None else self.changed_config

    @property
    def shown_row(self) -> Mapping[str, Any]:
        """Its last report, with the last value of the goal if the report has none."""
        row = self.row or {}
        return {**row, **self.earlier} if self.earlier else row

    @property
    def shown_status(self) -> Status:
        """The status for people: a trial that waits because a person paused it is PAUSED."""
        return Status.PAUSED if self.waits_for_person else self.status

    @property
    def waits_for_person(self) -> bool:
        """True if it does not start because a person paused it."""
        return self.is_held and self.status is Status.PENDING

    @property
    def waits_for_worker(self) -> bool:
        """True if it starts as soon as resources are free for it."""
        return self.status is Status.PENDING and not self.is_held

    @property
    def is_pausing(self) -> bool:
        """True if a person paused it, but it still runs."""
        return self.is_held and self.status.has_worker

    @property
    def granted(self) -> PlacementGroupFactory:
        """The part of its resources that this attempt has."""
        resources = self.spec.resources
        return resources.first(self.bundles) if self.bundles else resources

    @property
    def next_bundle(self) -> Mapping[str, float] | None:
        """The resources that one more worker of an elastic trial needs; None if it has all
        workers."""
        bundles = self.spec.resources.bundles
        return bundles[self.bundles] if 0 < self.bundles < len(bundles) else None

    @property
    def usage(self) -> Usage | None:
        """What all its attempts have used; None if nothing is known."""
        return usage_of_all(self.usages)

    @property
    def newest_checkpoint(self) -> CheckpointRecord | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def first_began_at(self) -> float:
        """When the first worker of the trial started; 0 before that."""
        return self.attempts[0].began_at if self.attempts else self.began_at

    @property
    def has_trained_its_length(self) -> bool:
        """True for a fresh run that has trained as long as the longest trial of the search."""
        return 0 < self.spec.trains_until <= self.iteration

    @property
    def has_saved(self) -> bool:
        """True if its newest checkpoint is of its newest iteration."""
        newest = self.newest_checkpoint
        return newest is not None and newest.iteration == self.iteration

    @property
    def awaited_checkpoint(self) -> CheckpointRecord | None:
        """The newest report's checkpoint, while that report waits for storage to confirm it."""
        newest = self.newest_checkpoint
        if newest is None or newest.upload is not CheckpointUploadMode.SYNC or newest.committed:
            return None
        is_of_report = (newest.attempt, newest.iteration) == (self.attempt, self.iteration)
        return newest if is_of_report else None

    @property
    def awaits_copy(self) -> bool:
        """True if it will start from a copy of another trial's checkpoint."""
        ends = self.status.is_final or self.status is Status.STOPPING
        return self.origin is not None and not ends

    @property
    def setbacks(self) -> int:
        """The failures of all kinds that count."""
        return self.failures + self.lost_workers + self.out_of_memory + self.preemptions

    def story(self) -> str:
        """A description of the trial for error messages."""
        return (
            f"trial {self.trial_id} ({self.status}, attempt {self.attempt}, "
            f"iteration {self.iteration}, {self.setbacks} failures)"
        )


evolve = evolver(Trial)
