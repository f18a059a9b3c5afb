"""The journal of a simulation: the records that a real run would write, and their digest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.event_codec import pack
from holdfast.scheduler.events import Event
from holdfast.scheduler.policy import Answers
from holdfast.syncer.journal.journal import Journal

Sink = str | os.PathLike[str] | Callable[[bytes], object] | None
# One write for each record would take longer than all the rest.
_AT_ONCE = 1000


class Trace:
    """Passes each record to `write`; `digest` is the SHA-256 of all, each with its size."""

    def __init__(self, write: Callable[[bytes], object] | None) -> None:
        self._write = write
        self.records = 0
        self._hash = sha256()

    def add(self, event: Event, now: float, answers: Answers) -> None:
        record = pack(event, now, answers)
        self.records += 1
        self._hash.update(b"%d:" % len(record))
        self._hash.update(record)
        if self._write is not None:
            self._write(record)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def tracing(sink: Sink) -> Iterator[Trace]:
    """A trace into a function, or into the journal of an experiment's directory.

    Raises JournalFull, OSError.
    """
    if sink is None or callable(sink):
        yield Trace(sink)
        return
    journal = Journal(Layout(Path(sink)).journal, fresh=True)
    batch: list[bytes] = []

    def write(record: bytes) -> None:
        batch.append(record)
        if len(batch) == _AT_ONCE:
            journal.append(batch)
            batch.clear()

    try:
        yield Trace(write)
    finally:
        journal.append(batch)
        journal.close()
