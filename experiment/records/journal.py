"""The records in an experiment's journal: their encoding, where runs begin, and what is damaged.

A folder may hold several runs, one after another: the first record of a segment says whether one
begins there. Damage affects only the run that it is in, not later ones. An unreadable journal is
never treated as missing: another run would set it aside and repeat its trials.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgpack

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import (
    JOURNAL,
    LOCK_WORKERS,
    PARAMS,
    SNAPSHOT_PREFIX,
    TUNER,
)
from holdfast.experiment.folder.shell import holdfast_command
from holdfast.scheduler.codec import Record, decode, encode
from holdfast.scheduler.events import (
    Begun,
    Event,
    ExperimentSpec,
    LimitChanged,
    Recalled,
    SamplesAdded,
)
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import Answers
from holdfast.schema import LATEST_S, UnreadableRecord
from holdfast.syncer.files.tree import open_regular
from holdfast.syncer.journal.journal import MAGIC, START, read
from holdfast.syncer.journal.segment import (
    HEADER,
    Position,
    Takeover,
    begins_at,
    check_magic,
    is_torn,
    newest_takeover,
    read_segment,
    segment_name,
    segments,
    takeover_of,
    takeovers,
)
from holdfast.syncer.journal.stretches import SegmentFile, segment_size
from holdfast.trial.errors import InvalidConfig, InvalidTransition, TuneError

_pack = msgpack.Packer(use_bin_type=True).pack


class OutOfPlace(UnreadableRecord):
    """A record that can be read, but cannot follow the records before it."""


def pack(event: Event, now: float, answers: Answers = ()) -> bytes:
    data: bytes = _pack(encode(event, now, answers))
    return data


def unpack(payload: bytes, end: Position | None = None) -> Record:
    """Decode a record. Raises UnreadableRecord for a record that this version cannot use.

    `end` is the record's end position: with it, the error names the record.
    """
    try:
        return decode(msgpack.unpackb(payload, strict_map_key=False))
    except UnreadableRecord as error:
        fault: Exception = error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        # MessagePack's own errors, for nesting that is too deep or keys that no dict can have.
        fault = UnreadableRecord(f"not a MessagePack record of holdfast ({error!r:.200})")
    raise UnreadableRecord(f"{place_of(payload, end)}{fault}") from None


def place_of(payload: bytes, end: Position | None) -> str:
    """The record's location, for an error; "" if not known."""
    if end is None:
        return ""
    start = end.offset - len(payload) - HEADER.size
    return f"{JOURNAL}/{segment_name(end.segment)}, record at offset {start}: "


def read_events(
    journal: Path, start: Position = START, stop: Position | None = None
) -> Iterator[tuple[Record, Position]]:
    """Each record from `start` on, with its end position. Raises UnreadableRecord."""
    for payload, position in read(journal, start, stop):
        yield unpack(payload, position), position


def replay(machine: Machine, record: Record, payload: bytes, end: Position) -> None:
    """Apply one record to the machine.

    Raises OutOfPlace, with the record's location, if it cannot follow the records before it.
    """
    try:
        machine.replay(record.event, now=record.now, answers=record.answers)
    except (UnreadableRecord, InvalidTransition) as error:
        raise OutOfPlace(f"{place_of(payload, end)}{error}") from error.__cause__


_CHUNK_BYTES = 1 << 20
_STEERING = [kind.__name__.encode() for kind in (LimitChanged, SamplesAdded)]
_LONGEST_NAME = max(map(len, _STEERING))
_HEAD_BYTES = 1 << 16
# The possible first records of an experiment's journal.
BEGINS = (Begun, Recalled)
# One of these is in the folder of every experiment that has trials. An exported model in a folder
# of the user has a params.json, too.
_MARKS = (JOURNAL, LOCK_WORKERS, TUNER)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStart:
    """Where the newest experiment of a journal begins, and its settings.

    `is_anew`: its first records were lost, and it begins with a state.
    """

    position: Position
    spec: ExperimentSpec
    began_at: float
    is_anew: bool = False


class JournalUnreadable(TuneError):
    """An experiment exists, but its journal is unreadable or missing: no run starts until it is
    repaired.

    `where` is the experiment, `found` the problem.
    """

    def __init__(self, where: str, found: str) -> None:
        super().__init__(where, found)
        self.where = where
        self.found = found

    def __str__(self) -> str:
        return (
            f"the journal of the experiment in {self.where} cannot be read: {self.found}. Nothing "
            f"was changed. Repair it with: {holdfast_command('doctor', 'repair', self.where)}"
        )

    def at(self, where: str) -> JournalUnreadable:
        """The same error for the path that the user knows."""
        return JournalUnreadable(where, self.found)


class NoSuchRun(InvalidConfig):
    """The folder has no run with this number."""


def find_beginning(journal: Path) -> JournalStart | None:
    """The newest experiment of the journal; a directory may hold several, one after another.

    None if none has begun, also if a run died during its very first write. Raises
    JournalUnreadable, or NewerFormat if a newer version wrote it.
    """
    known = segments(journal)
    found = ""
    for number in reversed(known):
        record = _first_record(journal, number)
        if record is not None and isinstance(record.event, BEGINS):
            return _start(number, record.event, record.now)
        if record is not None:
            found = f"{segment_name(number)} is intact, but the segments before it are missing"
        else:
            found = _fault(journal, number) or found
    if found:
        raise JournalUnreadable(str(journal.parent), found)
    if traces := traces_in(journal.parent):
        what = "its segments are empty" if known else "it has no segments"
        raise JournalUnreadable(str(journal.parent), f"{what}, but {traces} exists")
    return None


def find_run(journal: Path, run: int) -> tuple[JournalStart, int | None]:
    """Run number `run` (from 1, the oldest) in a folder, and the segment in which the next run
    begins.

    Raises NoSuchRun.
    """
    known = runs_before(journal, None)
    if not 1 <= run <= len(known):
        numbers = "only run 1" if len(known) == 1 else f"runs 1 to {len(known)}"
        raise NoSuchRun(f"there is no run {run} in {journal.parent}: it holds {numbers}")
    following = known[run].position.segment if run < len(known) else None
    return known[run - 1], following


def runs_before(journal: Path, segment: int | None) -> list[JournalStart]:
    """Every experiment that began before `segment` (None: all), oldest first.

    Reads the first record of each segment; an unreadable one begins no experiment.
    """
    known = []
    for number in segments(journal):
        if segment is not None and number >= segment:
            break
        record = _first_record(journal, number)
        if record is not None and isinstance(record.event, BEGINS):
            known.append(_start(number, record.event, record.now))
    return known


def runs_known_before(journal: Path, segment: int) -> int | None:
    """How many experiments began before this segment; None if their segments are elsewhere.

    A journal that was downloaded from storage has only the segments of the newest experiment. One
    that the doctor has rebuilt begins with the state of a snapshot, in a later segment.
    """
    first = next(iter(segments(journal)), segment)
    if first != segment or first == 0:
        return len(runs_before(journal, segment))
    record = _first_record(journal, first)
    return 0 if record is not None and isinstance(record.event, Recalled) else None


def check_nothing_behind(journal: Path, end: Position) -> None:
    """Refuse a finished experiment with unreadable records after its end.

    Another experiment may have begun there. The rest of an interrupted write does not count.
    Raises JournalUnreadable.
    """
    numbers = segments(journal)
    for takeover in takeovers(journal, numbers):  # it may have copies of the last records
        end = takeover.found(end) or end
    for number in numbers:
        if number < end.segment:
            continue
        path = journal / segment_name(number)
        table = takeover_of(journal, number)
        begin = len(MAGIC) if table is None else table.base
        offset = end.offset if number == end.segment else begin
        if path.stat().st_size > offset and not is_torn(path, offset):
            raise JournalUnreadable(
                str(journal.parent),
                f"{segment_name(number)} is damaged from offset {offset} on, after the end of a "
                "finished run: the damaged records may be those of another run",
            )


def _start(number: int, event: Begun | Recalled, now: float) -> JournalStart:
    return JournalStart(
        position=Position(number, 0),
        spec=event.spec,
        began_at=now,
        is_anew=isinstance(event, Recalled),
    )


def _first_record(journal: Path, number: int) -> Record | None:
    """The first record of a segment. Reads only the start of a large segment."""
    for size in (_HEAD_BYTES, None):
        for payload, end in read_segment(journal, number, 0, size):
            return unpack(payload, Position(number, end))
    return None


def _fault(journal: Path, number: int) -> str:
    """Why a segment has no first record; "" if a crash during its first write explains it."""
    path = journal / segment_name(number)
    if is_torn(path, 0):
        return ""
    with open_regular(path) as file:
        first = file.read(len(MAGIC))
    if not check_magic(first, path):
        if first[:-1] == MAGIC[:-1]:
            return f"the byte of {path.name} that names its format is damaged (format {first[-1]})"
        return f"{path.name} does not begin as a journal does (its first bytes are {first!r})"
    return f"the first record of {path.name} is damaged"


def may_be_steered(journal: Path, begins: int) -> bool:
    """True if a person may have changed settings of the experiment that begins in this segment.

    Looks for the names of such events in the bytes, which takes a tenth of the time of reading the
    records.
    """
    return any(_has_name(journal / segment_name(n)) for n in segments(journal) if n >= begins)


def _has_name(path: Path) -> bool:
    last = b""
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            seam = last + chunk[:_LONGEST_NAME]
            if any(name in chunk or name in seam for name in _STEERING):
                return True
            last = chunk[-_LONGEST_NAME:]
    return False


def has_begun(journal: Path) -> bool:
    """True if an experiment begins in this journal, which may be unreadable. Raises OSError."""
    try:
        return find_beginning(journal) is not None
    except JournalUnreadable:
        return True


def traces_in(root: Path) -> str:
    """A file that shows that an experiment was here without a journal; "" if there is none."""
    is_marked = any(os.path.lexists(root / name) for name in _MARKS)
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                if entry.name.startswith(SNAPSHOT_PREFIX) and entry.name.endswith(".json"):
                    return entry.name
                if (
                    is_marked
                    and entry.is_dir()
                    and os.path.exists(os.path.join(entry.path, PARAMS))
                ):
                    return f"{entry.name}/{PARAMS}"
    except (FileNotFoundError, NotADirectoryError):
        pass
    return ""


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
        """True if nothing was ever written to it."""
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


# Seconds since any fixed start, independent of the clock; on Linux they include sleep. Saved now,
# in case user code replaces these functions later.
_elapsed: Callable[[], float] = time.monotonic
if sys.platform == "linux":
    _elapsed = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class WallClock:
    """Follows the system's clock; if that goes back or returns nonsense, counts on from its last
    time."""

    def __init__(
        self,
        system_time: Callable[[], object] = lambda: time.time(),
        elapsed: Callable[[], float] = _elapsed,
    ) -> None:
        self._system_time = system_time
        self._elapsed = elapsed
        # One tuple, replaced as a whole, because several threads use it.
        self._last = (0.0, elapsed())

    def now(self) -> float:
        """Seconds since 1970, before the year 10000."""
        before, at = self._last
        elapsed, system_s = self._elapsed(), self._system_time()
        # The comparison is false for NaN.
        if isinstance(system_s, (float, int)) and before <= system_s <= LATEST_S:
            now = float(system_s)
        else:
            now = before + (elapsed - at)
        self._last = (now, elapsed)
        return now


wall_time = WallClock().now
