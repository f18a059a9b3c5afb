"""Reads the journal of an experiment on this machine: all of it at once, then what is new."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from holdfast.experiment.page.history import History
from holdfast.syncer.journal.journal import (
    MAGIC,
    Position,
    read,
    read_segment,
    segment_name,
    segments,
)
from holdfast.syncer.journal.reading import begins_at
from holdfast.syncer.journal.segment import takeovers
from holdfast.syncer.journal.stretches import SegmentFile, segment_size

_BLOCK: Final = 4 << 20
AT_ONCE: Final = 50_000


class JournalReplaced(Exception):
    """The journal is not the one that was read before, or has been cut."""


class JournalTail:
    """The records after the position `end`, which moves on as they are read.

    `is_download`: the files were downloaded, and another download replaces them by longer ones.
    """

    def __init__(self, journal: Path, end: Position, *, is_download: bool = False) -> None:
        """Raises OSError."""
        self._journal = journal
        self._is_download = is_download
        self.end = end
        self._file = self._identity()

    def check(self) -> int:
        """The size of the segment that is being read. Raises JournalReplaced, OSError."""
        try:
            is_same = self._identity() == self._file
            size = segment_size(self._journal, self.end.segment)
        except FileNotFoundError:
            raise JournalReplaced from None
        if not is_same or size < self.end.offset:
            raise JournalReplaced
        return size

    def news(self) -> list[tuple[bytes, Position]]:
        """The next new records, at most AT_ONCE. Raises JournalReplaced, OSError."""
        size = self.check()
        following = self._journal / segment_name(self.end.segment + 1)
        if size == self.end.offset and not os.path.lexists(following):
            return []
        news = list(islice(read(self._journal, self.end), AT_ONCE))
        if news:
            before, self.end = self.end, news[-1][1]
            if before.segment != self.end.segment:
                self._file = self._identity()
        return news

    @property
    def size_bytes(self) -> int:
        """The size of all segments up to the end. Raises OSError."""
        known = [number for number in segments(self._journal) if number <= self.end.segment]
        return sum(segment_size(self._journal, number) for number in known)

    @property
    def rest_bytes(self) -> int:
        """The bytes after the last whole record. Raises OSError."""
        newest = max(segments(self._journal), default=self.end.segment)
        rest = segment_size(self._journal, newest)
        return rest - self.end.offset if newest == self.end.segment else rest

    def _identity(self) -> tuple[int, int]:
        found = os.stat(self._journal / segment_name(self.end.segment))
        return (0, 0) if self._is_download else (found.st_dev, found.st_ino)


def newest_records(journal: Path, end: Position, most: int) -> Iterable[bytes]:
    """The payloads of the newest records of the last segment before `end`. Raises OSError."""
    records = read_segment(journal, end.segment, 0, end.offset) if end.offset else ()
    return deque((payload for payload, _ in records), maxlen=most)


def hear_journal(journal: Path, begins: int, end: Position, history: History) -> None:
    """Let the history hear all records from the segment `begins` to `end`. Raises OSError."""
    known = [number for number in segments(journal) if begins <= number <= end.segment]
    if list(takeovers(journal, known[1:])):  # rare: after a failed fsync
        for payload, _ in read(journal, Position(begins), end):
            history.hear(payload)
        return
    for expected, number in enumerate(known, begins):
        if number != expected or not _hear_segment(
            journal, number, end.offset if number == end.segment else None, history
        ):
            return


def _hear_segment(journal: Path, number: int, limit: int | None, history: History) -> bool:
    """Whether it was read to its end, or to the offset `limit`."""
    end = segment_size(journal, number) if limit is None else limit
    with SegmentFile(journal, number) as file:
        at = begins_at(file, journal / segment_name(number))
        if not at:
            return end <= len(MAGIC)
        rest = b""
        while at + len(rest) < end:
            data = rest + file.read(min(max(_BLOCK, 2 * len(rest)), end - at - len(rest)))
            if len(data) == len(rest):
                break
            heard = history.hear_frames(data)
            at, rest = at + heard, data[heard:]
            if not heard and at + len(data) >= end:
                break
    return at >= end
