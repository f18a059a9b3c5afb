"""Snapshots: the machine at one position of the journal, so that a restore replays only the rest.

`experiment_state-<UTC time>.json` is one JSON object whose first line is a CRC-32 of the rest. A
snapshot only saves time and is never the truth: if it is damaged, or does not belong to its
journal, an older one or the journal alone is used, with a warning. It also notes how far the files
of unfinished trials were written (`FileNotes`): the next projector continues them.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import SNAPSHOT_PREFIX, VARIANTS_PREFIX, Layout
from holdfast.experiment.records.journal import JournalStart, find_beginning
from holdfast.names import shown
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.machine import Machine, from_snapshot
from holdfast.schema import (
    Count,
    FolderName,
    Moment,
    Sparse,
    Stored,
    UnreadableRecord,
    decode,
    to_fields,
)
from holdfast.syncer.files.durable import replace_file, write_atomic
from holdfast.syncer.files.tree import open_regular
from holdfast.syncer.journal.journal import Position, read_segment, segment_name
from holdfast.syncer.stores.store import parse_table, read_small
from holdfast.trial.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The first `size` bytes of a file, and their CRC-32."""

    size: Count = 0
    crc32: Count = 0

    @classmethod
    def of(cls, data: bytes) -> Written:
        return cls(size=len(data), crc32=zlib.crc32(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The sizes of the files after the row of a checkpoint of this iteration was written."""

    iteration: Count = 0
    results: Count = 0
    rows: Count = 0
    curves: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesNote:
    """The files of a trial: result.json, progress.csv with its `rows`, error.txt, and `curves`.

    `curves_at` and `emptied_at` are the numbers in the names of the event file and of the empty
    one before it; 0 if there is none. `usage` is what the attempt has used since its last row.
    """

    trial_id: str
    results: Written
    progress: Written
    rows: Count
    errors: Written
    curves: Written
    curves_at: Sparse[Count] = 0
    emptied_at: Sparse[Count] = 0
    marks: Sparse[Sequence[Mark]] = ()
    usage: Sparse[Mapping[str, float] | None] = None

    @property
    def is_possible(self) -> bool:
        """True if there are no more rows than bytes, and no marks behind the end of a file."""
        return self.rows <= self.progress.size and all(
            mark.results <= self.results.size
            and mark.rows <= self.rows
            and mark.curves <= self.curves.size
            for mark in self.marks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNotes:
    """The notes of trials whose files were as their records say, and how they were written."""

    shown_as: ClassVar[str] = "the snapshot's notes of files"

    with_curves: bool
    with_config: bool
    trials: Sequence[FilesNote] = ()


FORMAT = 1
_SUFFIX = ".json"
_MOST_BYTES = 1 << 30
_FIRST_LINE = len('{"crc32": "00000000",\n')
_MARK = "__holdfast_bytes__"
_NO_SPACE = re.compile(r"[^ \t\n\r]")
Hook = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """The newest record that a snapshot includes, as its file has it: it ends at `offset`.

    `record_crc32` is that of the payload, which shows whether a journal is the one that the
    snapshot was taken of.
    """

    shown_as: ClassVar[str] = "the snapshot's journal"

    segment: Count
    offset: Count
    record_start: Count
    record_crc32: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`machine` is the state after the journal's records up to `last`.

    `begun_at` is when this run of the experiment began (seconds since the epoch) and gives the
    file its name. `unwritten` are trials whose files were behind the journal. `unswept` are the
    folders of trials in which a process may have left something that a restore removes; None if
    that is not known of any. `files` continue the files of trials that have not ended; None if
    they have to be written anew.
    """

    machine: Machine
    last: LastRecord
    begun_at: float
    boot_id: str
    unwritten: tuple[str, ...] = ()
    unswept: tuple[str, ...] | None = None
    files: FileNotes | None = None

    @property
    def position(self) -> Position:
        return Position(self.last.segment, self.last.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSnapshot:
    """A snapshot's file: its content, or why it cannot be used."""

    name: str
    snapshot: Snapshot | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Where a restore starts: `beginning` is None if there is no journal.

    Without a `snapshot` the replay starts at the beginning. `skipped` has a line for each newer
    snapshot that could not be used.
    """

    beginning: JournalStart | None
    snapshot: Snapshot | None = None
    skipped: tuple[str, ...] = ()


class BadSnapshot(ValueError):
    """The file is not a snapshot that this version can use; the message says why."""


def load_newest_snapshot(
    layout: Layout, *, within: Position | None = None, beginning: JournalStart | None = None
) -> Loaded:
    """The newest intact snapshot of the newest experiment, or of that with this `beginning`.

    It must fit the journal. Its machine has no policy: a policy with state needs a replay from the
    beginning instead. `within` is the reliable end of the journal: later snapshots are not used.
    Raises UnreadableRecord if the journal begins with a record of another version of holdfast.
    """
    beginning = beginning or find_beginning(layout.journal)
    if beginning is None:
        return Loaded(beginning=None)
    skipped: list[str] = []
    for loaded in load_snapshots(layout, beginning.spec.experiment_id):
        found, fault = loaded.snapshot, loaded.fault
        if found is not None and found.position < beginning.position:
            fault = "the journal restarts after it"
        elif found is not None and within is not None and found.position > within:
            fault = "the journal before it is damaged"
        if not fault:
            return Loaded(beginning=beginning, snapshot=found, skipped=tuple(skipped))
        skipped.append(f"{loaded.name} is not used: {fault}")
    return Loaded(beginning=beginning, skipped=tuple(skipped))


def write_snapshot(layout: Layout, taken: Snapshot) -> int:
    """Write the snapshot and the search's state for readers durably; return their bytes.

    The journal is not flushed here: its writer must get the error of a failed fsync, and the
    kernel may report it once. So after a power cut a snapshot may be ahead of its journal; then it
    is not used. Each run has one file, which is replaced each time; of earlier ones of the same
    experiment only the newest is kept. Raises OSError and then leaves the old files.
    """
    stamp = datetime.fromtimestamp(taken.begun_at, UTC).strftime("%Y-%m-%d_%H-%M-%S")
    name = f"{SNAPSHOT_PREFIX}{stamp}{_SUFFIX}"
    state = _encode(taken)
    write_atomic(layout.root / name, state)
    variants = json.dumps(_variants(taken.machine), indent=2).encode()
    replace_file(f"{layout.root}/{VARIANTS_PREFIX}{stamp}{_SUFFIX}", variants)
    _prune(layout.root, taken.machine.spec.experiment_id, name)
    return len(state) + len(variants)


def snapshot_names(root: Path) -> list[str]:
    """The names of snapshots, newest run first."""
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return []
    known = (n for n in names if n.startswith(SNAPSHOT_PREFIX) and n.endswith(_SUFFIX))
    return sorted(known, reverse=True)


def load_snapshots(layout: Layout, experiment_id: str) -> Iterator[LoadedSnapshot]:
    """The snapshots of an experiment, newest run first, and those that do not name one: a damaged
    one may be this experiment's."""
    for name in snapshot_names(layout.root):
        if _experiment_named_in(layout.root / name) in (experiment_id, None):
            try:
                yield LoadedSnapshot(name=name, snapshot=load_snapshot(layout, name))
            except (BadSnapshot, UnreadableRecord, OSError) as error:
                yield LoadedSnapshot(name=name, fault=str(error))


def _experiment_named_in(path: Path) -> str | None:
    """The experiment that a snapshot names in its head; None if unreadable."""
    try:
        with open_regular(path) as file:
            line = file.read(_FIRST_LINE + 4096)[_FIRST_LINE:].split(b"\n", 1)[0]
        named = parse_table(b"{" + line.rstrip(b",") + b"}")["experiment_id"]
    except (OSError, ValueError, KeyError):
        return None
    return str(named)


def _encode(taken: Snapshot) -> bytes:
    file = SnapshotFile(
        crc32="",
        experiment_id=taken.machine.spec.experiment_id,
        format=FORMAT,
        journal=taken.last,
        begun_at=taken.begun_at,
        boot_id=taken.boot_id,
        unwritten=taken.unwritten,
        unswept=taken.unswept,
        files=taken.files,
        machine=snapshot(taken.machine),
    )
    head = to_fields(file)
    del head["crc32"]  # it is in the first line
    dumps = json.JSONEncoder(default=_mark_bytes).encode
    parts = [f"{dumps(key)}: {dumps(value)}" for key, value in head.items()]
    body = (",\n".join(parts) + "}\n").encode()
    return b'{"crc32": "%08x",\n' % zlib.crc32(body) + body


def _mark_bytes(value: Any) -> dict[str, str]:
    """Mark bytes, which a reported row may contain and JSON cannot hold."""
    if isinstance(value, bytes):
        return {_MARK: base64.b64encode(value).decode("ascii")}
    raise TypeError(f"a snapshot cannot hold a {type(value).__name__}")


def _unmark_bytes(value: dict[str, Any]) -> Any:
    return base64.b64decode(value[_MARK]) if _MARK in value else value


def load_snapshot(layout: Layout, name: str) -> Snapshot:
    """Load a snapshot. Raises BadSnapshot, also if it is of another journal, UnreadableRecord,
    OSError."""
    taken = read_snapshot(layout, name)
    check_journal(layout.journal, taken.last)
    return taken


def read_snapshot(layout: Layout, name: str) -> Snapshot:
    """Read a snapshot without the journal. Raises BadSnapshot, UnreadableRecord, OSError."""
    data = read_small(layout.root / name, _MOST_BYTES)
    if data[:_FIRST_LINE] != b'{"crc32": "%08x",\n' % zlib.crc32(data[_FIRST_LINE:]):
        raise BadSnapshot("it is truncated or damaged (its CRC-32 does not match)")
    # A hook for a million small objects doubles the time, so it is used only if needed.
    hook = _unmark_bytes if _MARK.encode() in data else None
    try:
        text = str(data, "utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise BadSnapshot(f"it is not JSON written by holdfast ({error!r:.200})") from error
    del data  # as many bytes as the trials
    with _uncollected():
        return _decoded(text, hook)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the garbage collector. A snapshot makes a million objects and no garbage, and the
    collector would visit them several times: a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decoded(text: str, hook: Hook | None) -> Snapshot:
    try:
        plain = parse(text, hook, knows=lambda written: written == FORMAT)
    except RecursionError:
        raise BadSnapshot("it is nested too deeply") from None
    except UnreadableRecord:
        raise
    except (ValueError, TypeError) as error:
        raise BadSnapshot(f"it is not JSON written by holdfast ({error!r:.200})") from error
    written = plain.get("format") if type(plain) is dict else None
    if written != FORMAT:
        raise BadSnapshot(f"it has format {shown(written)}, but this version reads {FORMAT}")
    file: SnapshotFile = decode(SnapshotFile, plain)
    return Snapshot(
        machine=from_snapshot(file.machine),
        last=file.journal,
        begun_at=file.begun_at,
        boot_id=file.boot_id,
        unwritten=tuple(file.unwritten),
        unswept=None if file.unswept is None else tuple(file.unswept),
        files=file.files,
    )


def _as_it_is(plain: Any) -> Any:
    if type(plain) is not dict:
        raise ValueError(f"must be a table of fields, not {shown(plain)}")
    return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """The fields of a snapshot's file, in order; `from_snapshot` decodes those of the machine."""

    shown_as: ClassVar[str] = "the snapshot"

    crc32: str
    experiment_id: str
    format: int
    journal: LastRecord
    begun_at: Moment
    boot_id: str
    unwritten: Sequence[str]
    unswept: Sparse[Sequence[FolderName] | None] = None
    files: Sparse[FileNotes | None] = None
    machine: Annotated[dict[str, Any], Stored(_as_it_is)]


def check_journal(journal: Path, last: LastRecord) -> None:
    """Refuse a snapshot whose records the journal has lost or replaced."""
    try:
        records = read_segment(journal, last.segment, last.record_start, size=last.offset)
        found = [(zlib.crc32(payload), end) for payload, end in records]
    except FileNotFoundError:
        found = []
    if found != [(last.record_crc32, last.offset)]:
        raise BadSnapshot(
            "the journal lacks the record that it was taken after "
            f"({segment_name(last.segment)}, offset {last.offset}): the journal was cut"
        )


def _variants(machine: Machine) -> Mapping[str, Any]:
    spec = machine.spec
    made = sum(not trial.spec.is_added for trial in machine.trials.values())
    return {
        "format": FORMAT,
        "experiment_id": spec.experiment_id,
        "variants_made": made,
        "total": made if machine.search_ended else None,
        "num_samples": spec.num_samples,
        "seed": spec.seed,
    }


def _prune(root: Path, experiment_id: str, newest: str) -> None:
    """Keep the new snapshot and the previous one: a script restarted in a loop leaves many."""
    older = [name for name in snapshot_names(root) if name < newest]
    ours = [name for name in older if _experiment_named_in(root / name) == experiment_id]
    for name in ours[1:]:
        (root / name).unlink(missing_ok=True)
        (root / name.replace(SNAPSHOT_PREFIX, VARIANTS_PREFIX)).unlink(missing_ok=True)


def parse(text: str, hook: Hook | None, *, knows: Callable[[Any], bool]) -> Any:
    """The fields of the snapshot's file as plain data, but with a tuple of Trials in
    `["machine"]["trials"]`, if it `knows` the format of the file, which comes before.

    The trials are decoded one by one: the plain data of 100,000 takes 440 MiB, four times as much
    as the trials themselves. `hook` is that of `json.loads`. Raises ValueError if this is no JSON,
    UnreadableRecord for an invalid trial, RecursionError.
    """
    walk = _Walk(text, hook)

    def machine(found: dict[str, Any]) -> Any:
        if not knows(found.get("format")) or not walk.begins("{"):
            return walk.value()
        return walk.table({"trials": lambda _: walk.trials()})

    try:
        plain = walk.table({"machine": machine}) if walk.begins("{") else walk.value()
        walk.expect("")
    except IndexError:
        raise ValueError("it ends too early") from None
    return plain


class _Walk:
    """A walk through the text of a JSON value."""

    def __init__(self, text: str, hook: Hook | None) -> None:
        self._text = text
        self._decode = json.JSONDecoder(object_hook=hook).raw_decode
        self._at = 0

    def begins(self, character: str) -> bool:
        """True if the next value begins with `character`."""
        self._at = self._next(self._at)
        return self._text[self._at] == character

    def value(self) -> Any:
        found, self._at = self._decode(self._text, self._at)
        return found

    def expect(self, character: str) -> None:
        """The next character, "" for the end; then the walk is at the next value."""
        at = self._next(self._at)
        if self._text[at : at + 1] != character:
            raise ValueError(f"{self._text[at : at + 10]!r} at {at} instead of {character!r}")
        self._at = self._next(at + 1)

    def table(self, own: dict[str, Callable[[dict[str, Any]], Any]]) -> dict[str, Any]:
        """An object; `own` has readers of values by their names, which get the values before."""
        found: dict[str, Any] = {}
        for _ in self._items("{", "}"):
            name = self.value()
            if type(name) is not str:
                raise ValueError(f"{name!r:.50} is not the name of a value")
            self.expect(":")
            found[name] = own[name](found) if name in own else self.value()
        return found

    def trials(self) -> Any:
        """The trials; anything but a list as it is."""
        if not self.begins("["):
            return self.value()
        names: dict[str, str] = {}
        found: list[Trial] = []
        text, decode_at = self._text, self._decode
        for _ in self._items("[", "]"):
            plain, at = decode_at(text, self._at)
            found.append(_trial(plain, names))
            while text.startswith(", {", at):  # as we write it: a tenth faster
                plain, at = decode_at(text, at + 2)
                found.append(_trial(plain, names))
            self._at = at
        return tuple(found)

    def _next(self, at: int) -> int:
        """Where the next character that is not white space is, from `at` on."""
        found = _NO_SPACE.search(self._text, at)
        return len(self._text) if found is None else found.start()

    def _items(self, opening: str, closing: str) -> Iterator[None]:
        """Yields at each item, which the caller then reads."""
        self.expect(opening)
        if self.begins(closing):
            self.expect(closing)
            return
        while True:
            yield
            if self.begins(closing):
                self.expect(closing)
                return
            self.expect(",")


def _trial(plain: Any, names: dict[str, str]) -> Trial:
    """The trial, whose row has the `names` of the others' rows: equal texts, once in memory."""
    if type(plain) is dict and type(row := plain.get("row")) is dict:
        plain["row"] = {names.setdefault(name, name): value for name, value in row.items()}
    trial: Trial = decode(Trial, plain)
    return trial
