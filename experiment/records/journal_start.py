"""Where the newest experiment of a journal begins, and the refusal where that cannot be read.

A journal that is there and cannot be read is never taken for none: another run in its place would
set it aside, and run again what was run.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import PARAMS, SNAPSHOT_PREFIX
from holdfast.experiment.records.event_codec import first_end, unpack
from holdfast.scheduler.events import Begun, ExperimentSpec, Recalled
from holdfast.syncer.files.regular import open_regular
from holdfast.syncer.journal.journal import MAGIC, Position, read_segment, segment_name, segments
from holdfast.syncer.journal.segment import check_magic, is_torn, takeover_of
from holdfast.trial.errors import InvalidConfig, TuneError

_HEAD_BYTES = 1 << 16
# What the journal of an experiment may begin with.
BEGINS = (Begun, Recalled)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStart:
    """Where the newest experiment of a journal begins, and what it was asked to do.

    `is_anew`: its first records were lost, and it begins with a state.
    """

    position: Position
    spec: ExperimentSpec
    began_at: float
    is_anew: bool = False


class JournalUnreadable(TuneError):
    """An experiment is there, and its journal cannot be read, or is gone: nothing begins in its
    place before it is mended.

    `where` is the experiment, `found` what was found.
    """

    def __init__(self, where: str, found: str) -> None:
        super().__init__(where, found)
        self.where = where
        self.found = found

    def __str__(self) -> str:
        return (
            f"the journal of the experiment in {self.where} cannot be read: {self.found}. "
            f"Nothing was changed. Mend it: holdfast doctor repair {self.where}"
        )

    def at(self, where: str) -> JournalUnreadable:
        """The same, of the place as the user knows it."""
        return JournalUnreadable(where, self.found)


class NoSuchRun(InvalidConfig):
    """A folder does not hold so many experiments, one after another."""


def find_beginning(journal: Path) -> JournalStart | None:
    """The newest experiment of the journal: a directory may hold several, one after another.

    None where none has begun, also where a run died in the middle of its very first write. Raises
    JournalUnreadable, or NewerFormat where a newer version wrote it.
    """
    known = segments(journal)
    found = ""
    for number in reversed(known):
        payload = _first_payload(journal, number)
        if payload is None:
            found = _fault(journal, number) or found
            continue
        event, now, _ = unpack(payload, first_end(number, payload))
        if isinstance(event, BEGINS):
            return JournalStart(
                position=Position(number, 0),
                spec=event.spec,
                began_at=now,
                is_anew=isinstance(event, Recalled),
            )
        found = f"{segment_name(number)} is whole, and what stood before it is not there"
    if found:
        raise JournalUnreadable(str(journal.parent), found)
    if traces := traces_in(journal.parent):
        what = "its segments are empty" if known else "it has no segments"
        raise JournalUnreadable(str(journal.parent), f"{what}, but {traces} is there")
    return None


def find_run(journal: Path, run: int) -> tuple[JournalStart, int | None]:
    """The experiment number `run` (from 1, the oldest) of those that have begun one after another
    in a folder, and the segment in which the next one begins.

    Raises NoSuchRun.
    """
    known = runs_before(journal, None)
    if not 1 <= run <= len(known):
        numbers = "only run 1" if len(known) == 1 else f"runs 1 to {len(known)}"
        raise NoSuchRun(f"there is no run {run} in {journal.parent}: it holds {numbers}")
    following = known[run].position.segment if run < len(known) else None
    return known[run - 1], following


def runs_before(journal: Path, segment: int | None) -> list[JournalStart]:
    """Every experiment that began before `segment` (None: all), oldest first. The first record of
    each segment is read; one that cannot be read begins none."""
    known = []
    for number in segments(journal):
        if segment is not None and number >= segment:
            break
        payload = _first_payload(journal, number)
        event, now, _ = (
            unpack(payload, first_end(number, payload)) if payload is not None else (None, 0.0, ())
        )
        if isinstance(event, BEGINS):
            at = Position(number, 0)
            known.append(JournalStart(position=at, spec=event.spec, began_at=now))
    return known


def runs_known_before(journal: Path, segment: int) -> int | None:
    """How many experiments began before this segment; None where their segments are elsewhere: a
    journal that was fetched from storage has those of the newest one."""
    first = next(iter(segments(journal)), segment)
    return None if first == segment and first > 0 else len(runs_before(journal, segment))


def check_nothing_behind(journal: Path, end: Position) -> None:
    """Refuse a finished experiment with records behind its end that cannot be read.

    Another experiment may have begun there. What a crash left in the middle of a write is none.
    Raises JournalUnreadable.
    """
    for number in segments(journal):
        if number < end.segment:
            continue
        path = journal / segment_name(number)
        takeover = takeover_of(journal, number)
        begin = len(MAGIC) if takeover is None else takeover.base
        offset = end.offset if number == end.segment else begin
        if path.stat().st_size > offset and not is_torn(path, offset):
            raise JournalUnreadable(
                str(journal.parent),
                f"what follows offset {offset} of {segment_name(number)} is damaged, behind the "
                f"end of a finished run: it may be another one",
            )


def _first_payload(journal: Path, number: int) -> bytes | None:
    """The first record of a segment, without reading a large one whole."""
    for size in (_HEAD_BYTES, None):
        for payload, _ in read_segment(journal, number, 0, size):
            return payload
    return None


def _fault(journal: Path, number: int) -> str:
    """Why a segment has no first record; "" where a crash in a first write leaves it so."""
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


def traces_in(root: Path) -> str:
    """What says that an experiment was here, where its journal does not; "" for nothing."""
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                if entry.name.startswith(SNAPSHOT_PREFIX) and entry.name.endswith(".json"):
                    return entry.name
                if entry.is_dir() and os.path.exists(os.path.join(entry.path, PARAMS)):
                    return f"{entry.name}/{PARAMS}"
    except (FileNotFoundError, NotADirectoryError):
        pass
    return ""
