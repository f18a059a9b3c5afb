"""An experiment as its records describe it, and whether it runs, has ended or was cut off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.stopping import RESUMABLE
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.location import Location
from holdfast.text.trials import count_reasons, states_text
from holdfast.trial.config import PERIOD_ON_NODES_S, SyncConfig
from holdfast.trial.trial import Status, StopReason

# A run publishes to storage every `sync_period`, and soon after each checkpoint. If it has been
# silent for two periods and this long, it has ended or cannot reach its storage.
_GRACE_S = 60.0
_BY_AN_ERROR = ("abort", "fail_fast", "errored")


class Condition(StrEnum):
    """The state of an experiment."""

    LIVE = "live"  # a process holds its lock, or it published to storage recently
    FINISHED = "finished"  # every trial has ended, none with an error
    ERRORED = "errored"  # it has ended; a trial, or the whole experiment, has failed
    INTERRUPTED = "interrupted"  # it was stopped or killed: a restore can finish it
    NEVER_BEGUN = "not begun"  # it ended before its first record
    UNREADABLE = "unreadable"  # its records cannot be read: run the doctor


def condition_of(
    machine: Machine, *, holder: str, heard_at: float | None, now: float
) -> Condition:
    """The state of the experiment at `now` (seconds since 1970).

    `holder` names the process on this machine that holds its lock, "" for none. `heard_at` is when
    it last published to storage (seconds since 1970, by the clock of the storage), None for an
    experiment that is read on this machine.
    """
    if holder:
        return Condition.LIVE
    if machine.finished:
        return _ended(machine)
    if heard_at is not None and now - heard_at <= longest_silence_s(machine):
        return Condition.LIVE
    return Condition.INTERRUPTED


def longest_silence_s(machine: Machine) -> float:
    """The most seconds between two publications of a live run."""
    return 2 * sync_period_s(machine) + _GRACE_S


def sync_period_s(machine: Machine) -> float:
    """The longest time between two publications to storage, in seconds."""
    usual = SyncConfig().sync_period
    period_s = float(machine.spec.options.get("sync", {}).get("sync_period", usual))
    return PERIOD_ON_NODES_S if machine.cluster and period_s == usual else period_s


def _ended(machine: Machine) -> Condition:
    reason = machine.ending.reason if machine.ending is not None else ""
    if reason in _BY_AN_ERROR:
        return Condition.ERRORED
    if reason in RESUMABLE and machine.has_rest:
        return Condition.INTERRUPTED
    return Condition.ERRORED if machine.errored else Condition.FINISHED


def counts(machine: Machine) -> dict[str, int]:
    """The number of trials of each status, in the order of a trial's life."""
    found = [trial.shown_status for trial in machine.trials.values()]
    return {status.value: found.count(status) for status in Status if status in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The progress of an experiment: its trials by status, and by why they have stopped.

    `not_created` is the number that the search has yet to create, None if the records do not say.
    """

    state: Condition
    counts: Mapping[str, int] = field(default_factory=dict)
    stop_reasons: Mapping[str, int] = field(default_factory=dict)
    not_created: int | None = None

    @property
    def is_live(self) -> bool:
        """True if a process runs it."""
        return self.state is Condition.LIVE

    @property
    def text(self) -> str:
        """`7 finished, 1 failed, 2 running, 3 not created yet`; `2 interrupted` if no process runs
        the experiment."""
        text = states_text(
            {Status(name): count for name, count in self.counts.items()},
            self.not_created or 0,
            ended=self.state in (Condition.FINISHED, Condition.ERRORED),
            is_live=self.is_live,
            reasons=self.stop_reasons,
            interrupted=self.stop_reasons.get(StopReason.INTERRUPTED, 0),
        )
        return text or "no trials yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentView:
    """An experiment that was read at `location`, from its tree or from a bucket.

    `layout` is its tree on this machine, None if it was read elsewhere. `begins` is its first
    segment, `began_at` its start (seconds since 1970), `end` the end of its last readable record.
    `notices` are about unusable records. `runs_before` is the number of earlier experiments in its
    folder (None: unknown, but not 0); `is_followed`: a later one exists.

    `shown` is its path in a form that commands accept, without credentials. `storage` is the URI
    of the storage that this tree is uploaded to, "" for another. `holder` and `heard_at`: see
    `condition_of`. `only`: the id of the one trial that the user named, "" for all.
    """

    machine: Machine
    location: Location
    layout: Layout | None
    begins: int = 0
    end: Position = Position()
    began_at: float = 0.0
    notices: tuple[str, ...] = ()
    runs_before: int | None = 0
    is_followed: bool = False
    shown: str = ""
    storage: str = ""
    holder: str = ""
    heard_at: float | None = None
    only: str = ""

    @property
    def name(self) -> str:
        return self.location.path.rstrip("/").rpartition("/")[2]

    @property
    def run(self) -> int | None:
        """Its number among the runs of its folder, from 1; None if it is not known."""
        return None if self.runs_before is None else self.runs_before + 1

    @property
    def reads_storage(self) -> bool:
        """True if its place is another than its tree on this machine, if it has one here."""
        return self.layout is None or str(self.layout.root) != self.location.local_path

    def condition(self, now: float) -> Condition:
        """Its state at `now`, in seconds since 1970."""
        return condition_of(self.machine, holder=self.holder, heard_at=self.heard_at, now=now)

    def standing(self, now: float) -> Standing:
        """Its state at `now`, in seconds since 1970, and the numbers of its trials."""
        state, machine = self.condition(now), self.machine
        found = count_reasons(machine.trials.values(), is_live=state is Condition.LIVE)
        return Standing(
            state=state,
            counts=counts(machine),
            stop_reasons={reason.value: count for reason, count in found.items()},
            not_created=machine.not_created,
        )
