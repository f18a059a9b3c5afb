"""Replays the journal through a machine, and finds what each event means for its trial."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from holdfast.experiment.records.event_codec import replay, unpack
from holdfast.experiment.records.journal_start import BEGINS
from holdfast.experiment.records.snapshots import LastRecord
from holdfast.scheduler.events import (
    Event,
    Exited,
    Raised,
    Resumed,
    StopperAnswered,
    Suggested,
)
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Position, read
from holdfast.trial.errors import Failure
from holdfast.trial.trial import Trial


class Fold:
    """A machine, and its position in the journal."""

    def __init__(self, machine: Machine, position: Position, begun_at: float = 0.0) -> None:
        self.machine = machine
        self.position = position
        self.begun_at = begun_at
        self._last_start = 0
        self.last_payload = b""

    @property
    def last(self) -> LastRecord:
        """The newest record, for a snapshot; only after one was read."""
        return LastRecord(
            segment=self.position.segment,
            offset=self.position.offset,
            record_start=self._last_start,
            record_crc32=zlib.crc32(self.last_payload),
        )

    def run(
        self, journal: Path, stop: Position | None
    ) -> Iterator[tuple[Event, float, Trial | None]]:
        """Yield each event, its time and its trial before it; the machine has already handled the
        event.

        Raises UnreadableRecord, OSError.
        """
        trials = self.machine.trials
        for payload, position in read(journal, self.position, stop):
            record = unpack(payload, position)
            event, now, _ = record
            before = trials.get(subject_of(event) or "")
            replay(self.machine, record, payload, position)
            if isinstance(event, (*BEGINS, Resumed)):
                self.begun_at = now
            known = self.position
            self._last_start = known.offset if known.segment == position.segment else 0
            self.last_payload, self.position = payload, position
            yield event, now, before


def subject_of(event: Event) -> str | None:
    """The trial that an event is about."""
    if isinstance(event, Suggested):
        return event.spec.trial_id
    return getattr(event, "trial_id", None)


def failure_of(event: Event, before: Trial, after: Trial) -> Failure:
    """Why the attempt ended.

    The machine may already have launched the next attempt; then the trial after the event has no
    error.
    """
    if isinstance(event, (Raised, StopperAnswered)) and event.failure is not None:
        return event.failure
    if after.error is not None:
        return after.error
    cause = event.cause if isinstance(event, Exited) else type(event).__name__
    place = before.place
    return Failure(
        kind="lost",
        type_name="WorkerLost",
        message=f"the worker process {place.pid} {cause}",
        pid=place.pid or None,
        hostname=place.hostname,
        node=place.node,
    )
