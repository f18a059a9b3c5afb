"""A trial: what it was asked to be, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

from holdfast.dataclass import dataclass
from holdfast.names import folder_name, plain_name
from holdfast.trial.bounds import Count, FolderName, Moment, Ordinal, PlainName
from holdfast.trial.checkpoint import CheckpointRecord, CheckpointUploadMode
from holdfast.trial.encoding import Config
from holdfast.trial.errors import Failure
from holdfast.trial.evolving import evolver
from holdfast.trial.resources import ONE_CPU, Bundles, PlacementGroupFactory


class Status(StrEnum):
    """Where a trial is. The lifecycle table in `holdfast.trial.lifecycle` says how it moves."""

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
        # Each event looks these up several times: an attribute costs a tenth of a property.
        self.is_final = word in ("TERMINATED", "ERROR")
        self.has_worker = word in ("STARTING", "RUNNING", "STOPPING")

    # Enum's own is a function in Python, which each look into a table of statuses would call.
    __hash__ = str.__hash__


class Budget(StrEnum):
    """What a failure counts against: the trial's count of this name."""

    FAILURES = "failures"
    LOST_WORKERS = "lost_workers"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTIONS = "preemptions"

    def spent(self, trial: Trial) -> int:
        count: int = getattr(trial, self.value)
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """What a trial was asked to be; but for its resources it stays so once the trial has begun.

    `config` holds plain values, and `Ref` or `Opaque` where the user's value is neither number,
    text nor a container of them. `tag` names the varied parameters, as in `0_lr=0.1`. `dirname` is
    its folder inside the experiment's.

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

    def __post_init__(self) -> None:
        # Both become paths, also where a user's function or a search algorithm has chosen them.
        plain_name(self.trial_id, "trial_id")
        folder_name(self.dirname, "dirname")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the current attempt runs."""

    pid: Count = 0
    hostname: str = ""
    node_ip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The checkpoint of another trial that a clone is to begin from."""

    trial_id: str
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial at one moment; `lifecycle.advance` gives the next one.

    `attempt` counts starts from 1. `iteration` is that of the newest accepted report of this
    attempt, `resumed_from` the iteration of the checkpoint that it began with (0: none).
    `time_total_s` is training time over the iterations that count, `time_at_start_s` what it was
    when the attempt began. `row` are the metrics that were reported last.
    `failures` counts against `FailureConfig.max_failures`, the three after it against budgets of
    their own, where they have any. `bundles` is how many of its resources' this attempt was
    given where they are elastic; until `shrunk_until` it is given `shrunk_to` at most. `has_room`:
    when it last saved there was room for one more. `changed_config` is the config since a
    scheduler changed it. `origin` is what a clone begins from, until it has a copy of that.
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

    @property
    def trial_id(self) -> str:
        return self.spec.trial_id

    @property
    def config(self) -> Mapping[str, Any]:
        """What it trains with now."""
        return self.spec.config if self.changed_config is None else self.changed_config

    @property
    def granted(self) -> PlacementGroupFactory:
        """What this attempt was given of what the trial asks for."""
        resources = self.spec.resources
        return resources.first(self.bundles) if self.bundles else resources

    @property
    def next_bundle(self) -> Mapping[str, float] | None:
        """What one more worker of an elastic trial needs; None where it has all."""
        bundles = self.spec.resources.bundles
        return bundles[self.bundles] if 0 < self.bundles < len(bundles) else None

    @property
    def newest_checkpoint(self) -> CheckpointRecord | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def awaited_checkpoint(self) -> CheckpointRecord | None:
        """The newest report's checkpoint, where that report waits for storage to have it."""
        newest = self.newest_checkpoint
        if newest is None or newest.upload is not CheckpointUploadMode.SYNC or newest.committed:
            return None
        is_of_report = (newest.attempt, newest.iteration) == (self.attempt, self.iteration)
        return newest if is_of_report else None

    @property
    def awaits_copy(self) -> bool:
        """Whether it will start from a copy of another trial's checkpoint."""
        ends = self.status.is_final or self.status is Status.STOPPING
        return self.origin is not None and not ends

    @property
    def setbacks(self) -> int:
        """Failures of every kind that count."""
        return self.failures + self.lost_workers + self.out_of_memory + self.preemptions

    def story(self) -> str:
        """The trial in a sentence, for errors."""
        return (
            f"trial {self.trial_id} ({self.status}, attempt {self.attempt}, "
            f"iteration {self.iteration}, {self.setbacks} failures)"
        )


evolve = evolver(Trial)
