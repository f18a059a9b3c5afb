"""Applies new records to a machine, without the reports that later ones replace. Pure: no I/O.

A thousand reports a second would take 2 % of a core in the machine alone. A report that only
changes the numbers of its trial is skipped if a newer one of the trial follows: the machine is
then as if it had handled both. Nearly all that are skipped are told by a few of their bytes, and
decoded only for a chart. `tests/experiment/page/test_folding.py` compares it with a machine that
has handled every record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final

import msgpack

from holdfast.dataclass import dataclass
from holdfast.experiment.page.raw_reports import (
    ID_AT,
    NAME,
    PLAIN,
    REPORT,
    beginning,
    find_iteration,
    id_of,
    is_only_progress,
    iteration_at,
)
from holdfast.experiment.page.recent import Recent
from holdfast.experiment.records.event_codec import replay, unpack
from holdfast.experiment.records.fold import subject_of
from holdfast.experiment.records.journal_start import BEGINS
from holdfast.scheduler.codec import Record
from holdfast.scheduler.events import (
    EndOrdered,
    Exited,
    Raised,
    Recalled,
    Resumed,
    Suggested,
)
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Position
from holdfast.trial.errors import UnreadableRecord
from holdfast.trial.events import Committed, Measured, Reported, Returned, Saved, Started
from holdfast.trial.stopper import reaches
from holdfast.trial.trial import Status

_NUMBERS: Final = (int, float)
# These change one trial and start waiting ones; they never change another trial that reports.
_OF_ONE_TRIAL = (
    Started,
    Suggested,
    Returned,
    Exited,
    Raised,
    Measured,
    Committed,
    Saved,
    Reported,
)


class AnotherBegins(Exception):
    """A record that cannot be applied: another run has begun in the folder, or the run has ended
    in a way that the skipped reports may matter for. Read the experiment again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What a batch of records has changed. `reports` counts all reports, also skipped ones.

    `is_more`: some record was more than a report. `is_all`: any trial may have changed.
    """

    changed: frozenset[str]
    reports: int
    is_more: bool
    is_all: bool


class Folding:
    """One machine, and the newest rows of its trials."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.recent = Recent()
        self._pending: dict[str, tuple[bytes, Position]] = {}
        # Until the next record of another kind: the attempts whose reports may be skipped, and by
        # the bytes of its id what follows in such a report, None if it may not be skipped.
        self._attempts: dict[str, int] = {}
        self._expected: dict[bytes, tuple[str, bytes] | None] = {}
        self._last_iteration = _last_iteration(machine.spec.stop)
        self._changed: set[str] = set()
        self._reports = 0
        self._is_more = self._is_all = False

    def apply(
        self,
        records: Iterable[tuple[bytes, Position]],
        hear: Callable[[bytes], None] = lambda payload: None,
    ) -> Folded:
        """Apply the records; `hear` gets the payload of each.

        Raises AnotherBegins, and UnreadableRecord for one that this version cannot use. The
        records before it have then been applied.
        """
        self._changed, self._reports = set(), 0
        self._is_more = self._is_all = False
        try:
            for payload, position in records:
                if payload.startswith(REPORT):
                    self._on_report(payload, position)
                else:
                    self._on_record(payload, position)
                hear(payload)
        finally:
            self._flush_all()
        return Folded(
            changed=frozenset(self._changed),
            reports=self._reports,
            is_more=self._is_more,
            is_all=self._is_all,
        )

    def remember(self, payload: bytes) -> None:
        """Keep the row of a record that the machine has handled before, if it is a report's."""
        if payload[1 : len(REPORT)] != NAME:
            return
        if payload[0] == PLAIN and is_only_progress(payload) and (at := find_iteration(payload)):
            trial_id = id_of(payload).decode(errors="replace")
            if trial_id in self.machine.trials:
                self.recent.add_report(trial_id, payload, at)
            return
        with suppress(ValueError, TypeError, OverflowError, RecursionError, KeyError, IndexError):
            fields = msgpack.unpackb(payload, strict_map_key=False)[2]
            if self._has_numbers(fields) and fields["trial_id"] in self.machine.trials:
                self._add(fields)

    def _on_report(self, payload: bytes, position: Position) -> None:
        key = id_of(payload)
        expected = self._expected[key] if key in self._expected else self._expect(key)
        if expected is not None and is_only_progress(payload):
            trial_id, begins = expected
            at = ID_AT + len(key)
            if payload.startswith(begins, at):
                at += len(begins)
                if self._is_before_the_last(payload, at):
                    self._reports += 1
                    self.recent.add_report(trial_id, payload, at)
                    self._wait(trial_id, payload, position)
                    return
        self._on_other_report(payload, position)

    def _expect(self, key: bytes) -> tuple[str, bytes] | None:
        """What follows this id in a report that may be skipped."""
        trial_id = key.decode(errors="replace")
        attempt = 0
        if self._last_iteration is not None and trial_id in self.machine.trials:
            attempt = self._running_attempt(trial_id)
        self._expected[key] = found = (trial_id, beginning(attempt)) if attempt else None
        return found

    def _is_before_the_last(self, payload: bytes, at: int) -> bool:
        try:
            return iteration_at(payload, at) < (self._last_iteration or 0)
        except (ValueError, IndexError):
            return False

    def _wait(self, trial_id: str, payload: bytes, position: Position) -> None:
        self._pending.pop(trial_id, None)  # the newest is last
        self._pending[trial_id] = (payload, position)

    def _on_other_report(self, payload: bytes, position: Position) -> None:
        try:
            raw = msgpack.unpackb(payload, strict_map_key=False)
            is_plain = self._is_plain(raw[2])
        except (ValueError, TypeError, OverflowError, RecursionError, KeyError, IndexError):
            is_plain = False
        if not is_plain:
            self._on_record(payload, position)
            return
        self._note(raw[2])
        self._wait(raw[2]["trial_id"], payload, position)

    def _is_plain(self, fields: Mapping[str, Any]) -> bool:
        """Whether a report only changes the numbers of a running trial."""
        return (
            fields["attempt"] == self._running_attempt(fields["trial_id"])
            and fields["checkpoint"] is None
            and self._has_numbers(fields)
            and fields["metrics"].get("done") is not True
            and not (self.machine.spec.stop and self._reaches_bound(fields))
        )

    @staticmethod
    def _has_numbers(fields: Mapping[str, Any]) -> bool:
        return (
            type(fields["metrics"]) is dict
            and type(fields["iteration"]) is int
            and type(fields["time_total_s"]) in _NUMBERS
            and type(fields["time_this_iter_s"]) in _NUMBERS
            and type(fields["timestamp"]) in _NUMBERS
        )

    def _running_attempt(self, trial_id: str) -> int:
        """The attempt of a trial whose reports may be skipped, until the next record of another
        kind; 0 if they may not."""
        attempt = self._attempts.get(trial_id)
        if attempt is None:
            machine, trial = self.machine, self.machine.trials[trial_id]
            is_one = (
                trial.status is Status.RUNNING
                and not (trial.is_held or trial.spec.resources.is_elastic)
                and trial_id not in machine.questions
                and not machine.spec.has_stopper
                and machine.expected.is_met
            )
            attempt = self._attempts[trial_id] = trial.attempt if is_one else 0
        return attempt

    def _reaches_bound(self, fields: Mapping[str, Any]) -> bool:
        automatic = {name: fields[name] for name in _TIMES}
        iteration = {"training_iteration": fields["iteration"]}
        row = {**automatic, **_EARLY, **fields["metrics"], **iteration}
        return reaches(row, self.machine.spec.stop) is not None

    def _note(self, fields: Mapping[str, Any]) -> None:
        self._reports += 1
        self._add(fields)

    def _add(self, fields: Mapping[str, Any]) -> None:
        self.recent.add(
            fields["trial_id"],
            fields["iteration"],
            fields["time_total_s"],
            fields["timestamp"],
            fields["metrics"],
        )

    def _on_record(self, payload: bytes, position: Position) -> None:
        record = unpack(payload, position)
        event = record.event
        if isinstance(event, BEGINS):
            raise AnotherBegins
        trial_id = subject_of(event)
        if isinstance(event, _OF_ONE_TRIAL) and payload[0] == PLAIN and trial_id is not None:
            self._flush(trial_id)
        else:
            self._flush_all()
        ending = self.machine.ending
        self._attempts.clear()
        self._expected.clear()
        self._replay(record, payload, position)
        if self.machine.ending is not ending and not isinstance(event, (EndOrdered, Resumed)):
            raise AnotherBegins
        self._is_more |= not isinstance(event, Reported)
        self._is_all |= isinstance(event, (Recalled, Resumed, EndOrdered))
        if trial_id is None:
            return
        self._changed.add(trial_id)
        if isinstance(event, Started):
            self.recent.roll_back(trial_id, self.machine.trials[trial_id].resumed_from)
        elif isinstance(event, Reported):
            self._note(
                {
                    "trial_id": trial_id,
                    "iteration": event.iteration,
                    "time_total_s": event.time_total_s,
                    "timestamp": event.timestamp,
                    "metrics": event.metrics,
                }
            )

    def _flush_all(self) -> None:
        for trial_id in list(self._pending):
            self._flush(trial_id)

    def _flush(self, trial_id: str) -> None:
        if (found := self._pending.pop(trial_id, None)) is None:
            return
        payload, position = found
        self._replay(unpack(payload, position), payload, position)
        self._changed.add(trial_id)

    def _replay(self, record: Record, payload: bytes, position: Position) -> None:
        # A report that waited may be older than the records that were applied before it.
        late = record._replace(now=max(record.now, self.machine.now))
        replay(self.machine, late, payload, position)
        self._changed.update(self.machine.moved)


_TIMES: Final = ("time_this_iter_s", "time_total_s", "timestamp")
# Bounds of these are rare: a report that may reach one is not skipped.
_EARLY: Final = {name: float("inf") for name in ("iterations_since_restore", "time_since_restore")}


def _last_iteration(stop: Mapping[str, float]) -> float | None:
    """The iteration at which all trials end, infinity without one; None if they may end earlier,
    by another metric."""
    bounds = {name: bound for name, bound in stop.items() if not isinstance(bound, bool)}
    if len(bounds) < len(stop) or not bounds.keys() <= {"training_iteration"}:
        return None
    return bounds.get("training_iteration", inf)
