"""Finds where the newest experiment of a journal begins, and refuses an unreadable journal.

An unreadable journal is never treated as missing: another run would set it aside and repeat its
trials.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import (
    JOURNAL,
    LOCK_WORKERS,
    PARAMS,
    SNAPSHOT_PREFIX,
    TUNER,
)
from holdfast.experiment.folder.shell_command import holdfast_command
from holdfast.experiment.records.event_codec import unpack
from holdfast.scheduler.codec import Record
from holdfast.scheduler.events import (
    Begun,
    ExperimentSpec,
    LimitChanged,
    Recalled,
    SamplesAdded,
)
from holdfast.syncer.files.tree import open_regular
from holdfast.syncer.journal.journal import MAGIC, Position, read_segment, segment_name, segments
from holdfast.syncer.journal.segment import check_magic, is_torn, takeover_of, takeovers
from holdfast.trial.errors import InvalidConfig, TuneError

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
    """Whether a person may have changed settings of the experiment that begins in this segment.

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
    """Whether an experiment begins in this journal, which may be unreadable. Raises OSError."""
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
