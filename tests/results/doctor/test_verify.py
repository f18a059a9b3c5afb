"""What the doctor finds on one machine and what it lets pass; a look changes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.experiment.user_objects import tuner_file
from holdfast.results.doctor.findings import Remedy, Severity
from holdfast.results.doctor.repair import collect, repair
from holdfast.results.doctor.upload import sync
from holdfast.results.doctor.verify import Depth, verify
from holdfast.syncer.journal.journal import MAGIC, Journal
from holdfast.syncer.uploader.lock import ExperimentLock, Locked
from tests.results.doctor.examined import SETTINGS, case, facts, kinds, newest_checkpoint
from tests.rig.runs.patient import healthy, litter
from tests.rig.runs.recorded import RecordedExperiment


def test_what_a_run_has_left_is_sound(root: Path) -> None:
    report = verify(case(root))
    assert report.findings == ()
    assert report.is_sound
    assert report.looked_at["trials"] == 3
    assert report.looked_at["rows"] == 10
    assert report.looked_at["checkpoints"] == 5


def test_a_run_that_ended_before_its_first_record_is_not_a_damage_to_the_next(
    tmp_path: Path,
) -> None:
    Journal(tmp_path / "run" / "journal").close()
    healthy(tmp_path / "run")
    assert [path.name for path in sorted((tmp_path / "run" / "journal").iterdir())] == [
        "000000.log",
        "000001.log",
    ]
    assert verify(case(tmp_path / "run")).findings == ()


def test_a_run_that_was_killed_before_its_first_record_has_lost_nothing(tmp_path: Path) -> None:
    Journal(tmp_path / "run" / "journal").close()
    tuner_file.write(tmp_path / "run" / "tuner.pkl", {})
    report = verify(case(tmp_path / "run"))
    assert report.is_sound
    assert kinds(report) == ["journal-empty"]
    # A snapshot shows that there were records.
    healthy(tmp_path / "other")
    for path in (tmp_path / "other" / "journal").iterdir():
        path.write_bytes(b"")
    (finding,) = [f for f in verify(case(tmp_path / "other")).findings if f.where == "journal"]
    assert (finding.kind, finding.remedy) == ("journal-unreadable", Remedy.REPAIR)
    assert finding.advice == "It can be rebuilt from a snapshot or the other segments"


@pytest.fixture
def cut_short(in_memory: Path) -> tuple[RecordedExperiment, str, str]:
    """One trial has a row since the newest snapshot, another one has none."""
    run = RecordedExperiment(in_memory / "run")
    tuner_file.write(run.layout.tuner, {})
    one, other = run.begin({"x": 1}), run.begin({"x": 2})
    run.report(one, {"loss": 3.0})
    run.report(other, {"loss": 3.0})
    run.write_files(snapshot=True)
    run.report(one, {"loss": 2.0})
    run.write_files()
    run.close()
    return run, one, other


def cut_off(path: Path, *, lines: int, more: str = "") -> None:
    kept = path.read_text().splitlines(keepends=True)[:-lines]
    path.write_text("".join(kept) + more)


@pytest.mark.parametrize("more", ["", '{"loss": 2.'])
def test_a_file_that_ends_after_the_newest_snapshot_is_as_a_kill_leaves_it(
    cut_short: tuple[RecordedExperiment, str, str], more: str
) -> None:
    run, one, _ = cut_short
    cut_off(run.folder(one) / "result.json", lines=1, more=more)
    cut_off(run.folder(one) / "progress.csv", lines=1)
    report = verify(case(run.layout.root))
    assert report.is_sound
    (finding,) = report.findings
    assert (finding.kind, finding.where) == ("rows-behind", run.folder(one).name)
    assert finding.what.startswith("result.json and progress.csv: the end is missing")
    assert repair(case(run.layout.root), SETTINGS).findings == ()


@pytest.mark.parametrize("kept", [0, 5])
def test_a_kill_while_a_file_is_written_for_the_first_time_is_no_damage(
    in_memory: Path, kept: int
) -> None:
    run = RecordedExperiment(in_memory / "run")
    tuner_file.write(run.layout.tuner, {})
    trial_id = run.begin({"rate": 0.5})
    run.report(trial_id, {"loss": 3.0})
    run.fail(trial_id)
    run.write_files()
    run.close()
    names = ["params.json", "result.json", "progress.csv", "error.txt"]
    for name in names:
        os.truncate(run.folder(trial_id) / name, kept)
    report = verify(case(run.layout.root))
    (finding,) = report.findings
    assert report.is_sound
    assert finding.what.startswith(f"{', '.join(names[:-1])} and {names[-1]}: the end is missing")
    assert repair(case(run.layout.root), SETTINGS).findings == ()
    (run.folder(trial_id) / "params.json").write_text('{"rate": 0.25}')
    (finding,) = verify(case(run.layout.root)).findings
    assert finding.what == "it differs from the journal: different parameters"


@pytest.mark.parametrize("name", ["result.json", "progress.csv"])
def test_a_file_that_lacks_what_it_had_at_the_newest_snapshot_is_damaged(
    cut_short: tuple[RecordedExperiment, str, str], name: str
) -> None:
    run, one, other = cut_short
    cut_off(run.folder(one) / name, lines=2)
    (run.folder(other) / name).unlink()
    report = verify(case(run.layout.root))
    assert not report.is_sound
    assert sorted(finding.where for finding in report.findings) == [
        f"{run.folder(one).name}/{name}",
        f"{run.folder(other).name}/{name}",
    ]


def test_a_look_changes_nothing_not_even_a_time(root: Path) -> None:
    newest_checkpoint(root).joinpath("model.txt").write_text("other bytes")
    litter(root)
    (root / ".lock").unlink()
    before = facts(root)
    assert not verify(case(root)).is_sound
    collect(case(root), removes=False)
    assert facts(root) == before


def test_a_look_needs_no_right_to_write(root: Path) -> None:
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert verify(case(root)).findings == ()
    finally:
        for folder in folders:
            folder.chmod(stat.S_IRWXU)


def test_a_damage_is_reported_with_what_where_and_what_to_do(root: Path) -> None:
    broken = newest_checkpoint(root)
    (broken / "model.txt").write_text("model of iteration 5")
    (finding,) = verify(case(root)).findings
    assert finding.severity is Severity.ERROR
    assert finding.where == f"{broken.parent.name}/{broken.name}"
    assert "checkpoint 3 of trial d2a66_00000 (iteration 4)" in finding.what
    assert "model.txt has a different sha256 checksum" in finding.what
    assert str(root) not in finding.what
    assert finding.remedy is Remedy.REPAIR
    assert verify(case(root), depth=Depth.QUICK).is_sound


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("progress.csv", "0.25", "0.26"), ("result.json", "0.25", "0.26"), ("params.json", "a", "b")],
)
def test_a_value_that_was_changed_by_hand_is_found(
    root: Path, name: str, old: str, new: str
) -> None:
    (path,) = root.glob(f"*_00000_*/{name}")
    path.write_text(path.read_text().replace(old, new))
    (finding,) = verify(case(root)).findings
    assert finding.where == f"{path.parent.name}/{name}"
    assert finding.severity is Severity.WARNING
    assert repair(case(root), SETTINGS).findings == ()


def test_a_snapshot_that_says_other_than_the_journal_is_found(root: Path) -> None:
    """Intact by its checksum, taken after an existing record, and wrong nevertheless."""
    import zlib

    (snapshot,) = root.glob("experiment_state-*.json")
    first, body = snapshot.read_bytes().split(b"\n", 1)
    head, machine = body.split(b'"machine"', 1)  # before it are notes of files
    machine = machine.replace(b'"iteration": 4', b'"iteration": 3', 1)
    body = head + b'"machine"' + machine
    snapshot.write_bytes(b'{"crc32": "%08x",\n' % zlib.crc32(body) + body)
    (finding,) = verify(case(root)).findings
    assert finding.kind == "snapshot-unusable"
    assert "differs from the state that the journal gives" in finding.what
    assert first != snapshot.read_bytes().split(b"\n", 1)[0]


@pytest.fixture
def held(root: Path) -> Iterator[Path]:
    lock = ExperimentLock(root / ".lock")
    yield root
    lock.release()


def test_one_that_runs_is_looked_at_and_nothing_else(held: Path) -> None:
    with (held / "journal" / "000000.log").open("ab") as file:
        file.write(b"half a rec")  # as a reader may see it
    before = facts(held)
    report = verify(case(held))
    assert kinds(report) == ["in-use"]
    assert f"process {os.getpid()}" in report.findings[0].what
    with pytest.raises(Locked, match=f"process {os.getpid()}"):
        repair(case(held), SETTINGS)
    with pytest.raises(Locked, match=f"process {os.getpid()}"):
        sync(case(held))
    for removes in (False, True):
        with pytest.raises(Locked, match=f"process {os.getpid()}"):
            collect(case(held), removes=removes)
    assert facts(held) == before


def test_an_empty_segment_and_a_beginning_that_never_came_are_no_damage(root: Path) -> None:
    (root / "journal" / "000001.log").write_bytes(MAGIC)
    assert verify(case(root)).findings == ()
