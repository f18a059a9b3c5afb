"""An experiment by another author, with valid checksums: nothing in it leads outside, and every
command reports the fault in one line."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgpack
import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.callbacks import thread
from holdfast.experiment.folder.contents import LeadsElsewhere, check_enclosed_trials
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.opened import read_head
from holdfast.experiment.records.recovery import recover
from holdfast.results.doctor.storage import gather
from holdfast.results.doctor.verify import verify
from holdfast.results.reading import ExperimentSite
from holdfast.schema import UnreadableRecord
from holdfast.syncer.artifacts.stored_index import read_listing
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.errors import ManifestMismatch, StorageRefused
from holdfast.syncer.journal.journal import read
from holdfast.syncer.journal.segment import HEADER, MAGIC, segment_name
from holdfast.syncer.journal.stretches import parse_head
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import ObjectInfo, read_note, read_small
from holdfast.trial.errors import TuneError
from tests.rig.runs.recorded import RecordedExperiment
from tests.rig.storage.stores import MemoryStore, Place

LOOKS = (
    ["show"],
    ["show", "--json"],
    ["best", "--metric", "loss", "--mode", "min"],
    ["export", "--format", "json"],
    ["export", "--rows", "--format", "csv"],
    ["replay", "--scheduler", "asha"],
    ["doctor", "verify"],
    ["doctor", "gc"],
    ["doctor", "gc", "--yes"],
    ["doctor", "repair"],
    ["doctor", "sync"],
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = tmp_path_factory.mktemp("hostile") / "world"
    run = RecordedExperiment(world / "storage" / "run", metric="loss", mode="min")
    for loss in (1.0, 2.0):
        trial_id = run.begin({"lr": loss})
        run.report(trial_id, {"loss": loss}, checkpoint="committed")
    run.ends(snapshot=True)
    victim = world / "victim"
    (victim / "checkpoint_000000").mkdir(parents=True)
    (victim / "checkpoint_000000" / "model").write_text("theirs")
    (victim / ".staging" / "x").mkdir(parents=True)
    for name in ("result.json", "stdout", "stderr", "error.txt", "params.json", "secret"):
        (victim / name).write_text("the secret\n")
    return world


@pytest.fixture
def world(template: Path, in_memory: Path) -> Path:
    return Path(shutil.copytree(template, in_memory / "world", symlinks=True))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def forge(root: Path, change: Callable[[list[Any]], object]) -> None:
    """Rewrite the journal with valid checksums; snapshots do not match it any more."""
    records = [msgpack.unpackb(payload) for payload, _ in read(root / "journal")]
    change(records)
    data = MAGIC
    for record in records:
        payload = msgpack.packb(record)
        data += HEADER.pack(len(payload), zlib.crc32(payload)) + payload
    (root / "journal" / segment_name(0)).write_bytes(data)
    for path in root.glob("experiment_state-*"):
        path.unlink()


def suggested(records: list[Any]) -> dict[str, Any]:
    """The fields of the first trial's spec."""
    spec: dict[str, Any] = next(r for r in records if r[0] == "Suggested")[2]["spec"]
    return spec


def look_in_every_way(root: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The stderr of each command. None ends with an unexpected exception."""
    said = []
    for words in [*LOOKS, ["ls"], ["logs"]]:
        more = ["0"] if words == ["logs"] else []
        place = root.parent if words == ["ls"] else root
        assert main([*words, str(place), *more]) in (0, 1, 2), words
        out, err = capsys.readouterr()
        assert "the secret" not in out + err
        assert "\x1b" not in out + err
        said.append(err)
    return said


@pytest.mark.parametrize(
    ("field", "name"),
    [
        *(("dirname", name) for name in ("journal", ".lock", "tuner.pkl", ".hidden")),
        *(
            (field, name)
            for name in ("../../victim", "/VICTIM", "..", "a\x1bb")
            for field in ("dirname", "trial_id")
        ),
    ],
)
def test_a_name_in_a_journal_leads_nowhere(
    world: Path, capsys: pytest.CaptureFixture[str], field: str, name: str
) -> None:
    root, victim = world / "storage" / "run", world / "victim"
    name = name.replace("/VICTIM", str(victim))
    forge(root, lambda records: suggested(records).update({field: name}))
    before = contents(victim)
    for err in look_in_every_way(root, capsys):
        assert len(err.splitlines()) <= 1
    shown = "journal/000000.log, record at offset"
    with pytest.raises(UnreadableRecord, match=rf"{shown} \d+: TrialSpec: {field} "):
        recover(Layout(root))
    for reading in (tune.ExperimentAnalysis, tune.Tuner.restore):
        with pytest.raises(TuneError):
            reading(str(root))
    assert contents(victim) == before


def test_two_trials_of_one_folder_are_refused(world: Path) -> None:
    root = world / "storage" / "run"
    first = next((root).glob("train_*")).name

    def both(records: list[Any]) -> None:
        for record in records:
            if record[0] == "Suggested":
                record[2]["spec"]["dirname"] = first

    forge(root, both)
    with pytest.raises(UnreadableRecord, match="there are two trials"):
        recover(Layout(root))


# -- links --------------------------------------------------------------------------------------


def link_out(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    "name",
    [
        *("TRIAL", "TRIAL/result.json", "TRIAL/stdout", "TRIAL/error.txt", "TRIAL/params.json"),
        *("TRIAL/checkpoint_000000", "TRIAL/.staging", "TRIAL/.stored.json", "TRIAL/progress.csv"),
        *("journal/000000.log", "pbt_global.txt", ".lock", "tuner.pkl"),
    ],
)
def test_a_link_in_an_experiment_leads_nowhere(
    world: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    root, victim = world / "storage" / "run", world / "victim"
    trial = sorted(root.glob("train_*"))[0]
    path = Path(str(root / name).replace(f"{root}/TRIAL", str(trial)))
    is_folder = name in ("TRIAL", "TRIAL/checkpoint_000000", "TRIAL/.staging")
    link_out(path, victim if is_folder else victim / "secret")
    before = contents(victim)
    look_in_every_way(root, capsys)
    assert main(["logs", str(root), "0", "--error"]) in (1, 2)
    assert "the secret" not in "".join(capsys.readouterr())
    assert contents(victim) == before


@pytest.mark.parametrize("how", ["leads outside", "gone"])
def test_an_experiment_that_has_lost_its_whole_journal_is_listed_as_unreadable(
    world: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    root, victim = world / "storage" / "run", world / "victim"
    (root / ".lock").touch()
    shutil.rmtree(root / "journal")
    if how == "leads outside":
        (root / "journal").symlink_to(victim)
    before = contents(victim)
    assert main(["ls", str(root.parent), "--json"]) == 1
    (listed,) = json.loads(capsys.readouterr().out)["experiments"]
    assert listed["state"] == "unreadable"
    assert "doctor repair" in listed["problem"]
    look_in_every_way(root, capsys)
    assert contents(victim) == before


def test_a_link_is_reported_by_verify_and_refused_by_what_writes(world: Path) -> None:
    root = world / "storage" / "run"
    trial = sorted(root.glob("train_*"))[0]
    link_out(trial, world / "victim")
    report = verify(ExperimentSite(shown=str(root), layout=Layout(root), remote=None))
    assert [f.where for f in report.findings if f.kind == "leads-elsewhere"] == [trial.name]
    with pytest.raises(LeadsElsewhere, match="is a link: holdfast would read or write"):
        check_enclosed_trials(Layout(root), recover(Layout(root)).machine)


def test_users_own_links_stay_what_they_are(world: Path) -> None:
    root = world / "storage" / "run"
    trial = sorted(root.glob("train_*"))[0]
    (trial / "data").symlink_to(world / "victim")
    (root / "notes").symlink_to(world / "victim")
    check_enclosed_trials(Layout(root), recover(Layout(root)).machine)


# -- single files -------------------------------------------------------------------------------


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "head.json"
    with huge.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(OSError, match=r"it has 3,221,225,472 bytes, and holdfast writes"):
        read_small(huge)
    with pytest.raises(OSError, match="holdfast writes at most 65,536"):
        read_note(huge)


# It has more memory than its own, but not as much as a file of rows may have.
_WITH_LITTLE_MEMORY = """
import resource, sys
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.syncer.stores.location import Location

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.RLIM_INFINITY))
print(len(TrialFolder.at(Location.resolve(sys.argv[1], None, {})).rows()))
"""


def test_rows_are_read_with_as_much_memory_as_the_file_has(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(b'{"loss": 1}\n' * 3)
    command = [sys.executable, "-c", _WITH_LITTLE_MEMORY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


def test_a_file_whose_size_is_not_known_is_read_to_its_end_or_to_the_limit() -> None:
    path = Path("/proc/self/status")
    assert path.stat().st_size == 0
    assert read_small(path).startswith(b"Name:")
    with pytest.raises(OSError, match="holdfast writes at most 10"):
        read_small(path, 10)


class HugeHead(MemoryStore):
    """The object with the name of a head claims to have three gigabytes."""

    async def head(self, key: str) -> ObjectInfo | None:
        return ObjectInfo(key=key, size=3 << 30)

    async def read(self, key: str) -> bytes:
        raise AssertionError(f"{key} is read")

    async def get(self, key: str, target: Path) -> int:
        raise AssertionError(f"{key} is fetched")


def test_a_head_in_storage_that_is_too_large_is_not_read() -> None:
    too_large = r"head\.json: it has 3,221,225,472 bytes, and holdfast writes at most 134,217,728"
    with pytest.raises(StorageRefused, match=too_large):
        asyncio.run(read_head(HugeHead()))
    found = gather(cast(Location, Place(HugeHead({"head.json": b""}))))
    assert re.search(too_large, found.head_fault)


HEAD = {
    "format": 2,
    "experiment_id": "x",
    "epoch": ".epochs/000001",
    "segments": [{"name": "000000.log", "size": 8, "crc32": 1}],
}


@pytest.mark.parametrize("name", ["../../x", "/x", "x.log", "000000.log/x", "١٢٣٤٥٦.log", 5])
def test_a_segment_of_another_name_is_refused(name: object) -> None:
    segment = {"name": name, "size": 1, "crc32": 1}
    with pytest.raises(ValueError, match="a segment must have a name"):
        parse_head(json.dumps({**HEAD, "segments": [segment]}).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("files", {"../x": {"size": 1, "checksum": None}}),
        ("files", {"/x": {"size": 1, "checksum": None}}),
        ("files", {"x": {"size": -1, "checksum": None}}),
        ("files", {"x": {"size": 1 << 70, "checksum": None}}),
        ("empty_folders", ["../x"]),
        ("empty_folders", "abc"),
        ("algorithm", "shake_128"),
    ],
)
def test_a_manifest_of_such_names_is_damaged(name: str, value: Any) -> None:
    plain = json.loads(manifest.Manifest(files={}).to_bytes()) | {name: value}
    plain["total_bytes"] = 1
    with pytest.raises(ManifestMismatch, match="is damaged"):
        manifest.Manifest.from_bytes(json.dumps(plain).encode(), "here")


def test_a_listing_that_names_what_is_elsewhere_is_refused() -> None:
    one = {"size": 1, "sha256": "", "mtime_ns": 1}
    for name, entry in (("../x", one), ("x", one | {"mtime_ns": 1 << 80})):
        with pytest.raises(ValueError, match=r".+"):
            read_listing(json.dumps({"format": 1, "files": {name: entry}}).encode())


def test_the_states_of_callbacks_have_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / "callbacks.msgpack"
    thread.write_states(path, {"Counting": {"seen": 1}})
    assert thread.load_state(thread.read_states(path)["Counting"]) == {"seen": 1}
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ValueError, match=r".+"):
            thread.read_states(path)


def test_records_too_deep_for_their_reader_are_one_line(world: Path) -> None:
    root = world / "storage" / "run"
    deep = b"\x91" * 5000 + b"\xc0"
    data = (root / "journal" / segment_name(0)).read_bytes()
    frame = struct.pack("<II", len(deep), zlib.crc32(deep)) + deep
    (root / "journal" / segment_name(0)).write_bytes(data + frame)
    with pytest.raises(UnreadableRecord, match=r"record at offset \d+: not a MessagePack record"):
        recover(Layout(root))


def test_a_file_of_gigabytes_is_reported_by_verify_without_being_read(world: Path) -> None:
    root = world / "storage" / "run"
    trial = sorted(root.glob("train_*"))[0]
    with (trial / "progress.csv").open("r+b") as file:
        file.truncate(3 << 30)
    report = verify(ExperimentSite(shown=str(root), layout=Layout(root), remote=None))
    (found,) = (f for f in report.findings if f.where == f"{trial.name}/progress.csv")
    assert "3,221,225,472 bytes, more than the journal explains" in found.what


@pytest.mark.parametrize(
    "plain",
    [5, {}, {"format": 2}, {"format": 2, "states": 5}, {"format": 2, "states": {"x": 5}},
     {"format": 2, "states": {5: b"x"}}, {"format": 1, "states": {}}],
)  # fmt: skip
def test_states_of_callbacks_of_wrong_content_are_refused(tmp_path: Path, plain: Any) -> None:
    path = tmp_path / "callbacks.msgpack"
    path.write_bytes(msgpack.packb(plain))
    with pytest.raises(ValueError, match=r".+"):
        thread.read_states(path)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 5000, '{"a": ' * 300 + "1" + "}" * 300])
def test_parameters_that_are_none_are_an_error_of_their_file(world: Path, text: str) -> None:
    trial = sorted((world / "storage" / "run").glob("train_*"))[0]
    (trial / "params.json").write_text(text)
    (trial / "result.json").write_text('{"training_iteration": 1}\n')
    with pytest.raises(TuneError, match=r"params.json is not a table of parameters"):
        _ = tune.Result.from_path(str(trial)).metrics
