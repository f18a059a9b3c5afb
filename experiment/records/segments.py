"""The journal's segments on the disk: the experiment that each belongs to, and its readable part.

A directory may hold several experiments, one after another: the first record of a segment says
whether one begins there. Damage affects only the experiment that it is in, not later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.records.event_codec import unpack
from holdfast.experiment.records.journal_start import BEGINS
from holdfast.schema import UnreadableRecord
from holdfast.syncer.journal.journal import MAGIC, Position, read_segment, segment_name, segments
from holdfast.syncer.journal.segment import (
    Takeover,
    begins_at,
    is_torn,
    newest_takeover,
    takeovers,
)
from holdfast.syncer.journal.stretches import SegmentFile, segment_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One segment.

    `end` is the end of its last complete record, 0 if it does not start like a segment. `begins`:
    an experiment begins in it. `is_foreign`: another version of holdfast wrote its first record.
    `is_torn`: the rest is the start of a record, or zeros, as after a crash during a write.
    """

    number: int
    size: int
    end: int
    begins: bool = False
    is_foreign: bool = False
    is_torn: bool = False

    @property
    def name(self) -> str:
        return segment_name(self.number)

    @property
    def is_whole(self) -> bool:
        return self.end == self.size

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written to it."""
        return self.size == len(MAGIC) and self.is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """The segments of one experiment, ascending."""

    segments: tuple[Segment, ...]

    @property
    def begins(self) -> bool:
        return self.segments[0].begins

    @property
    def readable(self) -> tuple[Segment, ...]:
        """The segments with reliable records: those after a gap are not."""
        found: list[Segment] = []
        for segment in self.segments:
            if found and (segment.number != found[-1].number + 1 or not found[-1].is_whole):
                break
            if not segment.end:
                break
            found.append(segment)
        return tuple(found)

    @property
    def span(self) -> tuple[Position, Position] | None:
        """The span of its readable records; None if there are none."""
        known = self.readable
        if not known:
            return None
        return Position(known[0].number), Position(known[-1].number, known[-1].end)

    @property
    def damage(self) -> JournalDamage | None:
        """The first place from which on it cannot be read."""
        if all(segment.is_empty for segment in self.segments):
            return None  # a run that ended before its first record, by Ctrl-C for instance
        known = self.readable
        if not self.begins and known:
            return JournalDamage(at=known[0], offset=0, later=self.segments[1:], is_gap=True)
        rest = self.segments[len(known) :]
        if known and not known[-1].is_whole:
            return JournalDamage(at=known[-1], offset=known[-1].end, later=rest)
        if not rest:
            return None
        is_gap = bool(known) and rest[0].number != known[-1].number + 1
        return JournalDamage(at=rest[0], offset=0, later=rest[1:], is_gap=is_gap)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalDamage:
    """From `offset` of the segment `at` on, and in all `later` segments, nothing can be used.

    `is_gap`: a segment before `at` is missing; `at` itself may be complete.
    """

    at: Segment
    offset: int
    later: tuple[Segment, ...] = ()
    is_gap: bool = False

    @property
    def is_torn(self) -> bool:
        """Whether a crash during a write explains it: then no acknowledged record follows."""
        return bool(self.offset) and not self.later and self.at.is_torn

    @property
    def size_bytes(self) -> int:
        return self.at.size - self.offset + sum(segment.size for segment in self.later)


def read_segments(journal: Path) -> tuple[Segment, ...]:
    """Read every segment. Raises OSError."""
    known = segments(journal)
    again = list(takeovers(journal, known))
    return tuple(
        _read_segment(journal, number, newest_takeover(number, again)) for number in known
    )


def chapters(found: Sequence[Segment]) -> list[Chapter]:
    """One chapter per experiment; segments before the first beginning form their own."""
    parts: list[list[Segment]] = []
    for segment in found:
        if segment.begins or not parts:
            parts.append([])
        parts[-1].append(segment)
    return [Chapter(segments=tuple(part)) for part in parts]


def _read_segment(journal: Path, number: int, again: Takeover | None) -> Segment:
    """Read a segment. Another segment repeats its end if there is an `again`: that part does not
    count."""
    path = journal / segment_name(number)
    size, end, first = segment_size(journal, number), 0, b""
    limit = size if again is None else again.limit(number) or 0
    for payload, position in read_segment(journal, number, 0, size):
        first, end = first or payload, position
    if not end:
        with SegmentFile(journal, number) as file:
            end = begins_at(file, path)
    if end >= limit:
        size = end = limit
    begins = _is_beginning(first) if first else False
    return Segment(
        number=number,
        size=size,
        end=end,
        begins=begins is True and end > len(MAGIC),
        is_foreign=begins is None,
        is_torn=end < size and is_torn(path, end),
    )


def _is_beginning(payload: bytes) -> bool | None:
    """Whether the record begins an experiment; None if this version does not know it."""
    try:
        return isinstance(unpack(payload).event, BEGINS)
    except UnreadableRecord:
        return None
