"""Checks an experiment's directory, trusting no other code.

It shares no code with holdfast: it reads the journal by its documented format, and manifests, rows
and event files by theirs. Each function returns a list of sentences, one for each fault.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import msgpack

from holdfast.dataclass import dataclass

_MAGIC = b"HFJRNL\x00\x01"
_MAGIC_AGAIN = b"HFJRNL\x00\x02"
_FRAME = struct.Struct("<II")


@dataclass(slots=True)
class CheckedTrial:
    """One trial according to the journal. `rows` are those that count, by iteration."""

    trial_id: str
    dirname: str
    config: Any = None
    rows: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    all_rows: set[tuple[int, int]] = field(default_factory=set)
    checkpoints: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    # Those that were saved without a report.
    unreported: set[int] = field(default_factory=set)
    begun: list[tuple[int, int]] = field(default_factory=list)
    newest_attempt: int = 0
    has_returned: bool = False
    # If the journal begins with a state, no record has the rows up to this attempt and iteration,
    # nor, of those that count, any up to the iteration `unknown`.
    recalled: tuple[int, int] = (0, 0)
    unknown: int = 0

    @property
    def expected(self) -> list[int]:
        """The iterations that its files must have."""
        return [*range(1, self.unknown + 1), *sorted(self.rows)]

    def begin(self, attempt: int) -> None:
        self.newest_attempt = attempt
        self.has_returned = False

    def report(self, fields: Mapping[str, Any]) -> None:
        attempt, iteration = fields["attempt"], fields["iteration"]
        self.all_rows.add((attempt, iteration))
        if attempt < self.newest_attempt:
            return
        if not self.begun or self.begun[-1][0] != attempt:
            self.begun.append((attempt, iteration))
        for later in [known for known in self.rows if known >= iteration]:
            del self.rows[later]
        self.rows[iteration] = fields
        self.unknown = min(self.unknown, iteration - 1)
        self.save(fields.get("checkpoint"))

    def save(self, checkpoint: Mapping[str, Any] | None) -> None:
        if checkpoint is not None:
            self.checkpoints[checkpoint["index"]] = checkpoint

    def commit(self, index: int, keep: Mapping[str, Any]) -> None:
        self.committed.add(index)
        most = keep["num_to_keep"]
        known = sorted(self.committed & self.checkpoints.keys())
        if most is None or len(known) <= most:
            return
        best = sorted(known, key=lambda at: self._rank(at, keep), reverse=True)[:most]
        for superseded in set(known) - {*best, known[-1]}:
            del self.checkpoints[superseded]

    def _rank(self, index: int, keep: Mapping[str, Any]) -> tuple[bool, float, int]:
        attribute = keep["checkpoint_score_attribute"]
        iteration = self.checkpoints[index]["iteration"]
        row = self.rows.get(iteration, {"metrics": {}})
        score = row["metrics"].get(attribute) if attribute else None
        if not isinstance(score, (int, float)) or score != score:
            return False, 0.0, index
        sign = -1.0 if keep["checkpoint_score_order"] == "min" else 1.0
        return True, sign * score, index


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An experiment according to its journal."""

    spec: Mapping[str, Any]
    trials: Mapping[str, CheckedTrial]
    incarnations: int


def records(root: Path) -> Iterator[list[Any]]:
    """Name, time and fields of every record of the journal, up to the first invalid byte.

    A segment of format 2 first says which records of earlier ones it repeats: those do not count.
    """
    found: list[tuple[tuple[int, int], bytes]] = []
    damaged_at: tuple[int, int] | None = None
    for number, data in _segments(root / "journal"):
        offset = len(_MAGIC)
        if not data.startswith((_MAGIC, _MAGIC_AGAIN)):
            break
        for payload, at in _framed(data, offset):
            if data.startswith(_MAGIC_AGAIN) and at == len(_MAGIC):
                segment, since, _ = msgpack.unpackb(payload)["takes_over"][0]
                found = [one for one in found if one[0] < (segment, since)]
                if damaged_at is not None and damaged_at >= (segment, since):
                    damaged_at = None
            elif damaged_at is None:
                found.append(((number, at), payload))
            offset = at + _FRAME.size + len(payload)
        if offset < len(data) and damaged_at is None:
            damaged_at = (number, offset)
    for _, payload in found:
        # The scheduler's decisions may follow them.
        yield msgpack.unpackb(payload, strict_map_key=False)[:3]


def _segments(journal: Path) -> Iterator[tuple[int, bytes]]:
    """Each segment: its file, and its continuation in `<number>+<offset>.log`, as in storage."""
    for path in sorted(path for path in journal.glob("*.log") if path.stem.isdigit()):
        data = path.read_bytes()
        while (more := journal / f"{path.stem}+{len(data)}.log").exists():
            data += more.read_bytes()
        yield int(path.stem), data


def _framed(data: bytes, offset: int) -> Iterator[tuple[bytes, int]]:
    """Each complete record, and its start."""
    while offset + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, offset)
        payload = data[offset + _FRAME.size : offset + _FRAME.size + length]
        if not length or len(payload) < length or zlib.crc32(payload) != crc:
            return
        yield payload, offset
        offset += _FRAME.size + length


def fold(root: Path) -> Checked:
    """The newest experiment in the directory. Raises ValueError if there is none."""
    spec: Mapping[str, Any] | None = None
    trials: dict[str, CheckedTrial] = {}
    incarnations = 0
    for name, _, fields, *_ in records(root):
        if name == "Recalled":
            spec, incarnations = fields["spec"], fields["state"]["epoch"]
            trials = {one["spec"]["trial_id"]: _recalled(one) for one in fields["state"]["trials"]}
        elif name == "Begun":
            spec, trials, incarnations = fields["spec"], {}, 1
        elif name == "Resumed":
            incarnations += 1
            spec = fields.get("spec") or spec
        elif name == "Suggested":
            made = fields["spec"]
            trials[made["trial_id"]] = CheckedTrial(
                made["trial_id"], made["dirname"], made["config"]
            )
        elif "trial_id" in fields and spec is not None:
            _apply(trials[fields["trial_id"]], name, fields, spec["checkpoint"])
    if spec is None:
        raise ValueError(f"the journal in {root} has no beginning")
    return Checked(spec=spec, trials=trials, incarnations=incarnations)


def _recalled(known: Mapping[str, Any]) -> CheckedTrial:
    spec, attempt = known["spec"], known["attempt"]
    trial = CheckedTrial(spec["trial_id"], spec["dirname"], spec["config"])
    trial.newest_attempt, trial.unknown = attempt, known["iteration"]
    trial.recalled = (attempt, trial.unknown)
    for checkpoint in known["checkpoints"]:
        trial.save(checkpoint)
        if checkpoint["committed"]:
            trial.committed.add(checkpoint["index"])
    return trial


def _apply(
    trial: CheckedTrial, name: str, fields: Mapping[str, Any], keep: Mapping[str, Any]
) -> None:
    match name:
        case "Started":
            trial.begin(fields["attempt"])
        case "Reported":
            trial.report(fields)
        case "Saved":
            trial.save(fields["checkpoint"])
            trial.unreported.add(fields["checkpoint"]["index"])
        case "Adopted":
            trial.save(fields["checkpoint"])
        case "Committed":
            trial.commit(fields["index"], keep)
        case "CheckpointLost":
            trial.checkpoints.pop(fields["index"], None)
        case "Returned":
            trial.has_returned = True
        case _:
            return


def check(
    root: Path,
    *,
    notes: Sequence[Mapping[str, Any]] = (),
    secrets: Iterable[str] = (),
    ended: bool = True,
    tensorboard: bool = False,
    storage: Path | None = None,
) -> list[str]:
    """All checks. `notes` are what the trials wrote down (see `tests.rig.script`).

    `ended`: the experiment has ended, so files must be complete and every checkpoint must be named
    by a record. `storage`: another place where a checkpoint may be complete.
    """
    found = fold(root)
    problems = [*unkept(found, notes), *run_twice(notes), *leaked(root, secrets)]
    problems += places(root)
    for trial in found.trials.values():
        problems += checkpoints(root, trial, ended=ended, storage=storage)
        if ended:
            problems += rows(root, trial)
            if tensorboard:
                problems += events(root, trial)
    return problems


def unkept(found: Checked, notes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Rows whose `report()` has returned and that the journal lacks."""
    for fact in notes:
        if fact.get("what") == "acknowledged":
            trial = found.trials.get(fact["trial"])
            row = fact["attempt"], fact["iteration"]
            if trial is None or (row > trial.recalled and row not in trial.all_rows):
                yield f"acknowledged and not in the journal: {fact}"


def run_twice(notes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Epochs that were run again although they were acknowledged with their checkpoint."""
    safe: set[tuple[str, int]] = set()
    for fact in notes:
        key = (fact.get("trial", ""), fact.get("iteration", 0))
        if fact.get("what") == "acknowledged" and fact["checkpoint"]:
            safe.add(key)
        elif fact.get("what") == "ran" and key in safe:
            yield f"run again although it was acknowledged with its checkpoint: {fact}"


def rows(root: Path, trial: CheckedTrial) -> Iterator[str]:
    """Whether result.json and progress.csv show each iteration once, from the newest attempt."""
    folder = root / trial.dirname
    if not trial.rows and not (folder / "result.json").exists():
        return
    lines = (folder / "result.json").read_text().splitlines()
    shown = [json.loads(line) for line in lines]
    expected = trial.expected
    found = [row["training_iteration"] for row in shown]
    if found != expected:
        yield f"{trial.dirname}/result.json has iterations {found}, the journal {expected}"
    for row in shown:
        known = trial.rows.get(row["training_iteration"])
        for key, value in (known or {"metrics": {}})["metrics"].items():
            # A class says that it is not done; a scheduler may end it with its last row.
            if key == "done" and row is shown[-1] and row.get(key) is True:
                continue
            if row.get(key) != value and value == value:
                yield f"{trial.dirname}/result.json: {key} is {row.get(key)!r}, not {value!r}"
    with (folder / "progress.csv").open(newline="") as file:
        columns = [int(row["training_iteration"]) for row in csv.DictReader(file)]
    if columns != expected:
        yield f"{trial.dirname}/progress.csv has iterations {columns}, the journal {expected}"


def events(root: Path, trial: CheckedTrial) -> Iterator[str]:
    """Whether TensorBoard's files have each (tag, step) once, for the steps of the journal."""
    steps: dict[str, list[int]] = {}
    for path in sorted((root / trial.dirname).glob("events.out.tfevents.*")):
        for tag, step in scalars(path.read_bytes()):
            if tag is not None:
                steps.setdefault(tag, []).append(step)
            else:
                for found in steps.values():
                    found[:] = [at for at in found if at < step]
    counted = [tag for tag in steps if tag.endswith("iterations_since_restore")]
    if trial.rows and not counted:
        yield f"{trial.dirname} has no events of iterations_since_restore"
    for tag in counted:
        if steps[tag] != trial.expected:
            yield f"{trial.dirname}: {tag} has steps {steps[tag]}, not {trial.expected}"


def checkpoints(
    root: Path, trial: CheckedTrial, *, ended: bool, storage: Path | None = None
) -> Iterator[str]:
    """Whether each named checkpoint is complete there, and no other one exists."""
    folder = root / trial.dirname
    there = {path.name for path in folder.glob("checkpoint_*")}
    named = {f"checkpoint_{index:06d}": index for index in trial.checkpoints}
    for name, index in named.items():
        if name not in there:
            if ended and index in trial.unreported - trial.committed:
                continue  # the trial was ended while it saved itself for a pause
            copy = None if storage is None else storage / trial.dirname / name
            if copy is None or any(manifest_problems(copy)):
                yield f"{trial.dirname}/{name} is named by the journal and not there"
        elif ended or index in trial.committed:
            yield from manifest_problems(folder / name)
    if ended:
        for name in sorted(there - named.keys()):
            marks = [folder / name / mark for mark in (".holdfast.json", ".holdfast-staged")]
            if not any(mark.exists() for mark in marks):
                continue  # the script's own
            yield f"{trial.dirname}/{name} is there and no record names it"


def manifest_problems(directory: Path) -> Iterator[str]:
    """Whether a checkpoint's files are those of its manifest, byte for byte."""
    path = directory / ".holdfast.json"
    if not path.exists():
        yield f"{directory} has no manifest"
        return
    for name, fact in json.loads(path.read_bytes())["files"].items():
        file = directory / name
        if not file.exists():
            yield f"{file} is missing"
        elif hashlib.sha256(file.read_bytes()).hexdigest() != fact["checksum"]:
            yield f"{file} has another checksum than its manifest"


def leaked(root: Path, secrets: Iterable[str]) -> Iterator[str]:
    """Files below `root` that hold one of the secrets."""
    wanted = [secret.encode() for secret in secrets]
    for folder, _, names in os.walk(root):
        for name in names:
            data = Path(folder, name).read_bytes()
            for secret in wanted:
                if secret in data:
                    yield f"{Path(folder, name)} holds the secret {secret.decode()!r}"


# Fields of an error, which may say where it was.
_PROSE = (".traceback", ".message", ".reason")


def places(root: Path) -> Iterator[str]:
    """Absolute paths in the state: an experiment that has one cannot be moved."""
    for name, _, fields, *_ in records(root):
        for key, text in _texts(fields, ""):
            if text.startswith("/") and not key.endswith(_PROSE) and ".metrics." not in key:
                yield f"the journal's {name}{key} is an absolute path: {text}"
    here = str(root.parent)
    for path in [*root.glob("experiment_state-*.json"), *root.glob("basic-variant-state-*.json")]:
        try:
            snapshot = json.loads(path.read_bytes())
        except ValueError:  # a power cut has torn it: a restore does not read it, either
            continue
        for key, text in _texts(snapshot, ""):
            if here in text and not key.endswith(_PROSE):
                yield f"{path.name}{key} names {root.parent}: {text}"
    tuner = root / "tuner.pkl"
    if tuner.exists() and here.encode() in tuner.read_bytes():
        yield f"tuner.pkl names {root.parent}"


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _texts(part, f"{key}.{name}")
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part, key)


def scalars(data: bytes) -> Iterator[tuple[str | None, int]]:
    """Tag and step of each scalar in an event file (TFRecord frames of Event messages).

    The tag None tells a reader to forget everything from this step on.
    """
    offset = 0
    while offset + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, offset)
        event = dict(_message(data[offset + 12 : offset + 12 + length]))
        offset += 12 + length + 4
        step = int(event.get(2, 0))
        if 7 in event:
            yield None, step
        for number, value in _message(event.get(5, b"")):
            if number == 1:
                parts = dict(_message(value))
                if 2 in parts or 8 in parts:
                    yield bytes(parts[1]).decode(), step


def _message(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field number and value of each field of a protocol buffer's bytes."""
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        match tag & 7:
            case 0:
                value, offset = _varint(data, offset)
                yield tag >> 3, value
            case 1:
                yield tag >> 3, data[offset : offset + 8]
                offset += 8
            case 2:
                length, offset = _varint(data, offset)
                yield tag >> 3, data[offset : offset + length]
                offset += length
            case 5:
                yield tag >> 3, data[offset : offset + 4]
                offset += 4
            case kind:
                raise ValueError(f"an event file has a field of wire type {kind}")


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 128:
            return value, offset
