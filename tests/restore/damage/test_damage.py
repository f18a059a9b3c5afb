"""Truncated, changed or lost files: restored up to the last valid record, and reported."""

from __future__ import annotations

import json
import random
import shutil
import signal
import zlib
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.snapshots import read_snapshot, snapshot_names
from holdfast.syncer.journal.journal import read, segment_name
from holdfast.syncer.journal.segment import HEADER, MAGIC
from tests.rig import checker
from tests.rig.bench import Bench, epochs_of, results
from tests.rig.nightly import rest_nightly
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process


def make_victim(folder: Path) -> Path:
    """Files that a restore would sweep, append to and overwrite, if it took the folder for a
    trial's."""
    victim = folder / "victim"
    for name in (".staging/x", "checkpoint_000000/model", "result.json", "stdout", "progress.csv"):
        path = victim / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs\n")
    return victim


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def forge(root: Path, dirname: str) -> None:
    """The first trial has its folder there."""
    records = list(checker.records(root))
    next(record for record in records if record[0] == "Suggested")[2]["spec"]["dirname"] = dirname
    data = MAGIC
    for record in records:
        payload = msgpack.packb(record)
        data += HEADER.pack(len(payload), zlib.crc32(payload)) + payload
    for path in (root / "journal").glob("*.log"):
        path.unlink()
    (root / "journal" / "000000.log").write_bytes(data)
    for path in root.glob("experiment_state-*"):
        path.unlink()


def fails_in_a_line(bench: Bench, folder: Path) -> None:
    victim = make_victim(folder)
    before = contents(victim)
    script = bench.restore()
    assert script.ends() == 1
    script.finish_reading()
    told = [line for line in script.stderr.splitlines() if "dirname" in line]
    assert len(told) == 1, script.stderr
    assert "must be one plain name" in told[0]
    assert script.left() == []
    assert contents(victim) == before


def test_a_restore_writes_nothing_outside_of_the_experiment(killed: Bench) -> None:
    forge(killed.root, "../../victim")
    fails_in_a_line(killed, killed.folder)


def test_a_restore_does_not_follow_the_link_in_place_of_a_trials_folder(killed: Bench) -> None:
    victim = make_victim(killed.folder)
    before = contents(victim)
    trial = sorted(killed.root.glob("train_*"))[0]
    shutil.rmtree(trial)
    trial.symlink_to(victim)
    script = killed.restore()
    assert script.ends() == 1
    script.finish_reading()
    assert "is a link: holdfast would read or write something outside" in script.stderr
    assert contents(victim) == before


@pytest.mark.server
def test_a_restore_from_a_bucket_writes_nothing_outside_of_the_experiment(
    killed: Bench, moto: S3Server
) -> None:
    forge(killed.root, f"{killed.folder}/victim")
    bucket = Bucket(moto, killed.folder.name)
    bucket.upload(killed.root)
    killed.use(bucket, machine="second")
    fails_in_a_line(killed, killed.folder)


def _zero(journal: Path, start: int) -> None:
    """A lost block of the disk: 4 KiB, or everything before the snapshot's last record."""
    path = journal / segment_name(0)
    data = path.read_bytes()
    lost = min(4096, start)
    path.write_bytes(bytes(lost) + data[lost:])


def _lose_first(journal: Path, _: int) -> None:
    (journal / segment_name(0)).unlink()


def _lose_all(journal: Path, _: int) -> None:
    shutil.rmtree(journal)


def _split(journal: Path) -> None:
    """Two segments: the second begins after a tenth of the records."""
    path = journal / segment_name(0)
    ends = [end.offset for _, end in read(journal)]
    at, data = ends[len(ends) // 10], path.read_bytes()
    (journal / segment_name(1)).write_bytes(MAGIC + data[at:])
    path.write_bytes(data[:at])


@pytest.mark.parametrize(
    ("damage", "behind"),
    rest_nightly(1, [(_zero, 3), (_lose_first, 3), (_lose_all, 0)]),
    ids=["zero", "first", "all"],
)
def test_no_acknowledged_epoch_runs_again_and_each_row_stays(
    killed: Bench,
    damage: Callable[[Path, int], None],
    behind: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`behind`: the number of records after the one of the snapshot."""
    monkeypatch.setenv("HOME", str(killed.folder / "home"))
    layout = Layout(killed.root)
    if damage is _lose_first:
        _split(layout.journal)
    places = [end for _, end in read(layout.journal)]
    for name in snapshot_names(killed.root):
        (killed.root / name).unlink()
    projector = Projector(layout, ProjectorSettings(), boot="")
    projector.catch_up(places[-1 - behind])
    projector.snapshot()
    projector.catch_up()
    rows = {path: path.read_bytes() for path in killed.root.glob("*/result.json")}
    assert len(rows) == 2
    damage(layout.journal, read_snapshot(layout, snapshot_names(killed.root)[0]).last.record_start)
    refused = killed.restore()
    assert refused.ends() == 1
    assert main(["doctor", "repair", str(killed.root)]) == 0
    assert {path: path.read_bytes() for path in rows} == rows
    assert epochs_of(killed.restore().succeeds()) == [4, 4]
    assert main(["doctor", "verify", str(killed.root)]) == 0
    assert killed.problems(tensorboard=True) == []
    for path, data in rows.items():
        lines = path.read_bytes().splitlines()
        assert lines[: len(data.splitlines())] == data.splitlines()


def journal_of(bench: Bench) -> Path:
    (segment,) = sorted((bench.root / "journal").glob("*.log"))
    return Path(segment)


def forget_notes(bench: Bench) -> None:
    """Records that the test has removed from the journal are not expected any more."""
    (bench.folder / "bench" / "notes").unlink(missing_ok=True)


def test_what_a_run_left_that_died_as_it_began_does_not_hide_the_next_from_storage(
    bench: Bench,
) -> None:
    """The next run began in the existing segment, and its publications followed it."""
    bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "here")
    journal = bench.folder / "here" / "run" / "journal"
    journal.mkdir(parents=True)
    (journal / "000000.log").write_bytes(b"HFJRNL\0\1 half a record")
    bench.start().succeeds()
    assert bench.problems(tensorboard=True) == []


@pytest.mark.parametrize("seed", rest_nightly(1, range(8)))
def test_a_journal_cut_anywhere_is_restored_from_what_is_left(killed: Bench, seed: int) -> None:
    journal = journal_of(killed)
    size = journal.stat().st_size
    first = len(next(iter(frames(journal))))
    cut = random.Random(seed).randrange(8 + first, size)
    with journal.open("r+b") as file:
        file.truncate(cut)
    forget_notes(killed)
    assert epochs_of(killed.restore().succeeds()) == [4, 4]
    assert killed.problems(tensorboard=True) == []


def frames(journal: Path) -> list[bytes]:
    data, offset, found = journal.read_bytes(), 8, []
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 4], "little")
        found.append(data[offset : offset + 8 + length])
        offset += 8 + length
    return found


def test_a_flipped_bit_in_the_journal_cuts_it_there_and_the_user_is_informed(
    killed: Bench,
) -> None:
    journal = journal_of(killed)
    data = bytearray(journal.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    journal.write_bytes(data)
    forget_notes(killed)
    restored = killed.restore().succeeds()
    assert epochs_of(restored) == [4, 4]
    assert "are not valid records" in restored.stderr
    assert "000000.log" in restored.stderr
    assert list((killed.root / "journal").glob("*.cut-*"))
    assert killed.problems(tensorboard=True) == []


def test_a_journal_without_a_readable_beginning_is_refused_and_left_as_it_is(
    killed: Bench,
) -> None:
    journal = journal_of(killed)
    data = bytearray(journal.read_bytes())
    data[20] ^= 1
    journal.write_bytes(data)
    restored = killed.restore()
    assert restored.ends() == 1
    restored.finish_reading()
    assert "JournalUnreadable" in restored.stderr
    assert f"holdfast doctor repair {killed.root}" in restored.stderr
    assert journal.read_bytes() == bytes(data)


@pytest.mark.parametrize("damage", rest_nightly(2, ["truncated", "deleted", "flipped"]))
def test_damaged_snapshots_are_skipped(committed: Bench, damage: str) -> None:
    snapshots = sorted(committed.root.glob("experiment_state-*.json"))
    assert snapshots
    for snapshot in snapshots:
        data = snapshot.read_bytes()
        if damage == "truncated":
            snapshot.write_bytes(data[: len(data) // 2])
        elif damage == "flipped":
            snapshot.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        else:
            snapshot.unlink()
    restored = committed.restore().succeeds()
    assert epochs_of(restored) == [4, 4]
    assert ("is not used" in restored.stderr) is (damage != "deleted")
    assert committed.problems(tensorboard=True) == []


@pytest.mark.parametrize("damage", rest_nightly(2, ["flipped", "deleted", "truncated"]))
def test_a_damaged_tuner_pkl_is_named_and_not_needed_where_all_is_given(
    killed: Bench, damage: str
) -> None:
    file = killed.root / "tuner.pkl"
    data = bytearray(file.read_bytes())
    if damage == "truncated":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    else:
        file.unlink()
    refused = killed.restore(give=False)
    assert refused.ends() == 1
    refused.finish_reading()
    assert "BrokenTunerFile" in refused.stderr
    assert str(file) in refused.stderr
    assert "pass restore() the trainable" in refused.stderr
    assert epochs_of(killed.restore(give_space=True).succeeds()) == [4, 4]
    assert killed.problems(tensorboard=True) == []


def newest_checkpoints(bench: Bench) -> list[Path]:
    folders = [bench.root / trial.dirname for trial in checker.fold(bench.root).trials.values()]
    return [sorted(folder.glob("checkpoint_*"))[-1] for folder in folders]


@pytest.mark.parametrize(
    "damage", rest_nightly(2, ["missing file", "flipped", "missing folder", "longer"])
)
def test_a_broken_checkpoint_is_reported_and_the_one_before_is_taken(
    request: pytest.FixtureRequest, damage: str
) -> None:
    # Only committed checkpoints have checksums.
    bench: Bench = request.getfixturevalue("committed" if damage == "flipped" else "killed")
    for checkpoint in newest_checkpoints(bench):
        weights = checkpoint / "weights"
        if damage == "missing folder":
            shutil.rmtree(checkpoint)
        elif damage == "missing file":
            weights.unlink()
        elif damage == "longer":
            weights.write_bytes(weights.read_bytes() + b"more")
        else:
            weights.write_bytes(b"\xff" + weights.read_bytes()[1:])
    forget_notes(bench)
    restored = bench.restore().succeeds()
    assert epochs_of(restored) == [4, 4]
    assert "checkpoint 1 of trial" in restored.stderr
    ran = [note["iteration"] for note in bench.notes() if note["what"] == "ran"]
    assert sorted(ran) == [2, 2, 3, 3, 4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_checkpoint_that_lost_its_manifest_since_it_was_committed_is_not_trusted(
    committed: Bench,
) -> None:
    for checkpoint in newest_checkpoints(committed):
        (checkpoint / ".holdfast.json").unlink()
    forget_notes(committed)
    restored = committed.restore().succeeds()
    assert epochs_of(restored) == [4, 4]
    assert "checkpoint 1 of trial" in restored.stderr
    assert committed.problems(tensorboard=True) == []


def test_without_any_whole_checkpoint_a_trial_begins_again(killed: Bench) -> None:
    for folder in killed.root.glob("*/checkpoint_*"):
        shutil.rmtree(folder)
    forget_notes(killed)
    assert epochs_of(killed.restore().succeeds()) == [4, 4]
    ran = [note["iteration"] for note in killed.notes() if note["what"] == "ran"]
    assert sorted(ran) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert killed.problems(tensorboard=True) == []


def test_a_bit_flipped_in_result_json_is_mended_by_a_restore_that_runs_the_trial(
    killed: Bench,
) -> None:
    for file in killed.root.glob("*/result.json"):
        file.write_text(json.dumps({"nonsense": 1}) + "\n{")
    assert epochs_of(killed.restore().succeeds()) == [4, 4]
    assert killed.problems(tensorboard=True) == []


def test_an_ended_trial_whose_last_checkpoint_is_gone_keeps_the_one_before(bench: Bench) -> None:
    """As after a move to another machine: the records are there, the checkpoint is not."""
    gate = bench.gate("0-3")  # the answer to the second report comes after the uploader's start
    script = bench.start(at_once=1)
    script.wait_for("at 0 3")
    (uploader,) = script.processes("uploader")
    uploader.signal(signal.SIGSTOP)
    gate.open()
    script.wait_for("begun 1 1")
    script.kill_all()
    assert script.left() == []
    (newest,) = bench.root.glob("*_00000_*/checkpoint_000003")
    shutil.rmtree(newest)
    # It is not waited for, either.
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "3600"
    restored = bench.restore().succeeds()
    found = results(restored)
    assert [trial["epoch"] for trial in found] == [4, 4]
    assert [trial["checkpoint"] for trial in found] == [3, 4]
    assert "checkpoint 3 of trial" in restored.stderr
    assert bench.problems(tensorboard=True) == []


def cut_before_a_report(journal: Path, *, of_iteration: int) -> None:
    """A disk has lost the journal from the first report of this iteration on."""
    kept, data = 8, journal.read_bytes()
    for frame in frames(journal):
        name, _, fields, *_ = msgpack.unpackb(frame[8:], strict_map_key=False)
        if name == "Reported" and fields["iteration"] == of_iteration:
            break
        kept += len(frame)
    journal.write_bytes(data[:kept])


@pytest.mark.parametrize(
    ("whole", "of_iteration"), rest_nightly(2, [(True, 1), (False, 2), (True, 2), (False, 1)])
)
def test_a_checkpoint_that_no_record_names_any_more_is_resumed_before_an_older_or_none(
    committed: Bench, whole: bool, of_iteration: int
) -> None:
    """The journal has lost its end, and the checkpoint before was superseded: only its manifest
    says how far the newest one is."""
    cut_before_a_report(journal_of(committed), of_iteration=of_iteration)
    for folder in committed.root.glob("*/checkpoint_000000"):
        shutil.rmtree(folder)
    for rows in committed.root.glob("*/result.json"):
        rows.unlink()
    assert len(list(committed.root.glob("*/checkpoint_000001"))) == 2
    if not whole:
        for weights in committed.root.glob("*/checkpoint_000001/weights"):
            weights.write_bytes(b"?" + weights.read_bytes()[1:])
    forget_notes(committed)
    restored = committed.restore().succeeds()
    assert epochs_of(restored) == [4, 4]
    assert ("is complete, although no record names it" in restored.stderr) is whole
    ran = [note["iteration"] for note in committed.notes() if note["what"] == "ran"]
    assert sorted(ran) == ([3, 3, 4, 4] if whole else [1, 1, 2, 2, 3, 3, 4, 4])


def test_checkpoints_before_the_one_that_is_resumed_and_that_no_record_names_are_removed(
    committed: Bench,
) -> None:
    cut_before_a_report(journal_of(committed), of_iteration=1)
    for rows in committed.root.glob("*/result.json"):
        rows.unlink()
    assert len(list(committed.root.glob("*/checkpoint_000000"))) == 2
    forget_notes(committed)
    restored = committed.restore().succeeds()
    assert "checkpoint 1 of trial" in restored.stderr
    assert epochs_of(restored) == [4, 4]
    for result in tune.load(committed.root):
        named = {Path(checkpoint.path).name for checkpoint, _ in result.best_checkpoints}
        assert {path.name for path in Path(result.path).glob("checkpoint_*")} == named


def test_what_repair_drops_from_the_records_does_not_hide_a_newer_whole_checkpoint(
    committed: Bench,
) -> None:
    cut_before_a_report(journal_of(committed), of_iteration=2)
    for folder in committed.root.glob("*/checkpoint_000000"):
        shutil.rmtree(folder)
    main(["doctor", "repair", str(committed.root)])
    forget_notes(committed)
    restored = committed.restore().succeeds()
    assert "is lost" not in restored.stderr
    assert epochs_of(restored) == [4, 4]
    ran = [note["iteration"] for note in committed.notes() if note["what"] == "ran"]
    assert sorted(ran) == [3, 3, 4, 4]


def test_a_manifest_of_an_earlier_version_leaves_it_to_result_json_how_far_it_goes(
    committed: Bench,
) -> None:
    assert main(["doctor", "repair", "--quick", str(committed.root)]) == 0
    for marker in committed.root.glob("*/checkpoint_*/.holdfast.json"):
        document = json.loads(marker.read_text())
        assert document.pop("reached")["training_iteration"] in (1, 2)
        marker.write_text(json.dumps(document))
    cut_before_a_report(journal_of(committed), of_iteration=2)
    for folder in committed.root.glob("*/checkpoint_000000"):
        shutil.rmtree(folder)
    forget_notes(committed)
    assert epochs_of(committed.restore().succeeds()) == [4, 4]
    ran = [note["iteration"] for note in committed.notes() if note["what"] == "ran"]
    assert sorted(ran) == [3, 3, 4, 4]
