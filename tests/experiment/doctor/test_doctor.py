"""The doctor on one machine: what it finds, what it repairs, and what it leaves alone."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.experiment.doctor.collect import collect
from holdfast.experiment.doctor.findings import DoctorReport, Remedy, Severity
from holdfast.experiment.doctor.repair import NothingHere, repair
from holdfast.experiment.doctor.target import DoctorTarget
from holdfast.experiment.doctor.upload import NotFit, sync
from holdfast.experiment.doctor.verify import Depth, verify
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.event_codec import pack
from holdfast.experiment.records.recovery import recover
from holdfast.experiment.user_objects import tuner_file
from holdfast.experiment.user_objects.stored_objects import StoredField
from holdfast.scheduler.events import CheckpointLost, Exited
from holdfast.scheduler.policy import (
    Decision,
    Observation,
    PauseTrial,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    View,
)
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.files.boot import boot_id
from holdfast.syncer.journal.journal import MAGIC, Journal, read, segment_name, segments
from holdfast.syncer.journal.segment import RecordSpan, start_of
from holdfast.syncer.uploader.lock import ExperimentLock, Locked
from holdfast.trial.checkpoint import checkpoint_dirname
from tests.rig import checker
from tests.rig.patient import HURTS, PLACES, healthy, hurt, keepsakes, litter
from tests.rig.recorded import RecordedExperiment

SETTINGS = Settings(local_dir=Path("/nowhere"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("patient") / "run"
    healthy(root)
    return root


@pytest.fixture
def root(template: Path, in_memory: Path) -> Path:
    return Path(shutil.copytree(template, in_memory / "run", symlinks=True))


def case(root: Path) -> DoctorTarget:
    return DoctorTarget(shown=str(root), layout=Layout(root), remote=None)


def kinds(report: DoctorReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def facts(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything that reading must not change: names, modes, times, bytes."""
    found = {}
    for path in [root, *root.rglob("*")]:
        told = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (told.st_mode, told.st_mtime_ns, content)
    return found


def newest_checkpoint(root: Path) -> Path:
    return sorted(root.glob("*_00000_*/checkpoint_*"))[-1]


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


def test_an_unfinished_run_is_sound_too(tmp_path: Path) -> None:
    healthy(tmp_path / "run", ended=False)
    assert verify(case(tmp_path / "run")).findings == ()


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


# A sample: all 1,280 were tried once.
WOUNDS = [(place, how, 1) for place in PLACES for how in HURTS]


@pytest.mark.parametrize(("place", "how", "seed"), WOUNDS)
def test_what_an_independent_checker_finds_the_doctor_finds_and_mends(
    root: Path, place: str, how: str, seed: int
) -> None:
    path = hurt(root, place, how, Random(f"{place} {how} {seed}"))
    shown = case(root)
    said = problems(root)
    before = verify(shown)
    if said:
        assert not before.is_sound, f"{path} was {how}: {said}"
    mended = repair(shown, SETTINGS)
    assert mended.is_sound, f"{path} was {how}: {mended.findings}"
    assert Remedy.REPAIR not in {finding.remedy for finding in mended.findings}
    assert bool(mended.actions) is (not before.is_sound)
    again = repair(shown, SETTINGS)
    assert again.actions == ()
    collect(shown, removes=True)
    newer = {f"{folder} is there and no record names it" for folder in newer_than_records(root)}
    assert set(problems(root)) <= newer
    recover(Layout(root), will_continue=True)
    journal = Journal(Layout(root).journal)
    journal.close()
    assert journal.cuts == []


def newer_than_records(root: Path) -> set[str]:
    """Checkpoints of unfinished trials that are newer than all that a cut journal knows: gc keeps
    them, because a restore may resume from them."""
    trials = [t for t in recover(Layout(root)).machine.trials.values() if not t.status.is_final]
    return {
        f"{trial.spec.dirname}/{path.name}"
        for trial in trials
        for path in (root / trial.spec.dirname).glob("checkpoint_*")
        if path.name >= checkpoint_dirname(trial.next_checkpoint)
    }


def test_gc_leaves_what_a_restore_may_resume_from_where_the_journal_lost_its_end(
    tmp_path: Path,
) -> None:
    run = RecordedExperiment(tmp_path / "exp")
    trial_id = run.begin()
    run.report(trial_id, {"loss": 3}, checkpoint="committed")
    (log,) = run.layout.journal.glob("*.log")
    left = log.stat().st_size
    for loss in (2, 1):
        run.report(trial_id, {"loss": loss}, checkpoint="committed")
    run.close()
    os.truncate(log, left)
    collect(case(run.layout.root), removes=True)
    there = sorted(path.name for path in run.folder(trial_id).glob("checkpoint_*"))
    assert there == ["checkpoint_000000", "checkpoint_000001", "checkpoint_000002"]


def problems(root: Path) -> list[str]:
    """What the checker reports, or why it cannot read."""
    try:
        return checker.check(root, ended=True, tensorboard=True)
    except (ValueError, KeyError, TypeError, OSError, IndexError) as error:
        return [f"{type(error).__name__}: {error}"]


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


def test_a_checkpoint_that_lost_its_manifest_is_dropped_for_nothing_proves_it(root: Path) -> None:
    broken = newest_checkpoint(root)
    (broken / ".holdfast.json").unlink()
    report = repair(case(root), SETTINGS)
    assert [action.where for action in report.actions] == [broken.parent.name]
    assert "there is no manifest" in report.actions[0].what
    trial = recover(Layout(root)).machine.trials["d2a66_00000"]
    assert [record.index for record in trial.checkpoints] == [0, 1, 2]
    assert broken.is_dir()  # it stays until garbage collection
    assert kinds(report) == ["checkpoint-unnamed"]


def test_a_repair_does_not_count_as_time_of_the_run(root: Path) -> None:
    before = recover(Layout(root)).machine
    shutil.rmtree(newest_checkpoint(root))
    repair(case(root), SETTINGS)
    after = recover(Layout(root)).machine
    assert (after.active_s, after.now) == (before.active_s, before.now)


def test_a_snapshot_of_a_journal_that_lost_records_is_put_aside_and_not_removed(
    root: Path,
) -> None:
    (log,) = root.glob("journal/*.log")
    os.truncate(log, log.stat().st_size // 2)
    (snapshot,) = root.glob("experiment_state-*.json")
    data = snapshot.read_bytes()
    assert "snapshot-unusable" in kinds(verify(case(root)))
    assert repair(case(root), SETTINGS).is_sound
    assert snapshot.with_name(f"{snapshot.name}.unusable").read_bytes() == data


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


def test_what_is_staged_is_reported_and_sync_commits_it(tmp_path: Path) -> None:
    root = tmp_path / "run"
    made = RecordedExperiment(root, boot=boot_id())
    trial = made.begin()
    made.report(trial, {"loss": 1.0}, checkpoint="staged")
    made.ends()
    tuner_file.write(made.layout.tuner, {})
    report = verify(case(root))
    assert kinds(report) == ["checkpoint-staged"]
    assert report.is_sound
    done = sync(case(root))
    assert [action.what for action in done.actions] == ["checkpoint 0 is committed"]
    assert done.findings == ()
    after = recover(Layout(root)).machine
    (record,) = after.trials[trial].checkpoints
    assert record.committed
    # The time since the run does not count as part of the run.
    assert (after.active_s, after.now) == (made.machine.active_s, made.machine.now)
    assert sync(case(root)).actions == ()


def test_what_was_staged_before_the_machine_went_down_is_not_a_checkpoint(tmp_path: Path) -> None:
    root = tmp_path / "run"
    made = RecordedExperiment(root, boot="another start")
    trial = made.begin()
    made.report(trial, {"loss": 1.0}, checkpoint="staged")
    made.ends()
    tuner_file.write(made.layout.tuner, {})
    assert kinds(verify(case(root))) == ["checkpoint-broken"]
    assert repair(case(root), SETTINGS).is_sound
    assert recover(Layout(root)).machine.trials[trial].checkpoints == ()


def test_garbage_is_shown_then_removed_and_what_is_the_users_stays(root: Path) -> None:
    garbage = litter(root)
    kept = keepsakes(root)
    shown = collect(case(root), removes=False)
    assert sorted(action.where for action in shown.actions) == garbage
    assert not any(action.is_done for action in shown.actions)
    assert all((root / where).exists() for where in garbage)
    removed = collect(case(root), removes=True)
    assert sorted(action.where for action in removed.actions) == garbage
    assert not any((root / where).exists() for where in garbage)
    assert all(path.read_text() == "the user's" for path in kept)
    assert [kind for kind in kinds(verify(case(root))) if kind != "folder-unknown"] == []
    assert collect(case(root), removes=True).actions == ()


def test_garbage_that_another_process_reads_is_shown_and_stays_until_then(root: Path) -> None:
    found = next(root.glob("*/checkpoint_000000")).with_name("checkpoint_000009")
    found.mkdir()
    with Checkpoint(found).as_directory():
        report = collect(case(root), removes=True)
        assert [action.is_done for action in report.actions if action.where.endswith("09")] == [
            False
        ]
        assert found.exists()
    assert all(action.is_done for action in collect(case(root), removes=True).actions)
    assert not found.exists()


def test_no_checkpoint_is_garbage_while_records_cannot_be_read(root: Path) -> None:
    (log,) = root.glob("journal/*.log")
    os.truncate(log, log.stat().st_size // 2)
    report = collect(case(root), removes=True)
    assert report.actions == ()
    assert "journal-torn" in kinds(report)
    assert len(list(root.glob("*/checkpoint_*"))) == 5


def test_another_experiment_of_the_directory_keeps_its_checkpoints(root: Path) -> None:
    run = RecordedExperiment(root, run="e1111", boot=boot_id())
    trial = run.begin()
    run.report(trial, {"loss": 1.0}, checkpoint="committed")
    run.finish(trial)
    run.ends(snapshot=True)
    assert verify(case(root)).findings == ()
    assert collect(case(root), removes=True).actions == ()
    assert len(list(root.glob("*/checkpoint_*"))) == 6


def test_a_damage_of_an_earlier_experiment_is_sealed_and_takes_nothing_from_the_newest(
    root: Path,
) -> None:
    run = RecordedExperiment(root, run="e1111", boot=boot_id())
    trial = run.begin()
    run.report(trial, {"loss": 1.0}, checkpoint="committed")
    run.ends()
    first, second = sorted(root.glob("journal/*.log"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    newest = second.read_bytes()
    (finding,) = verify(case(root)).findings
    assert finding.kind == "journal-damaged"
    assert "of an earlier experiment" in finding.what
    report = repair(case(root), SETTINGS)
    assert report.is_sound
    assert second.read_bytes() == newest
    assert recover(Layout(root), will_continue=True).machine.trials.keys() == {trial}


def test_a_missing_segment_ends_what_can_be_used_and_the_rest_is_kept_aside(
    tmp_path: Path,
) -> None:
    root = tmp_path / "run"
    run = healthy(root)
    journal = Journal(run.layout.journal)
    for number in range(3):
        journal.rotate()
        lost = CheckpointLost(trial_id="d2a66_00000", index=number, reason="for the test")
        journal.append([pack(lost, 1.0)])
    journal.close()
    assert segments(run.layout.journal) == [0, 1, 2, 3]
    (run.layout.journal / "000002.log").unlink()
    kept = (run.layout.journal / "000003.log").read_bytes()
    found = [f for f in verify(case(root)).findings if f.severity is Severity.ERROR]
    assert [finding.kind for finding in found] == ["journal-gap"]
    assert repair(case(root), SETTINGS).is_sound
    assert segments(run.layout.journal) == [0, 1]
    assert (run.layout.journal / "000003.cut-0").read_bytes() == kept


def test_a_repair_that_died_between_two_steps_is_done_by_the_next(root: Path) -> None:
    (log,) = root.glob("journal/*.log")
    data = log.read_bytes()
    log.write_bytes(data + b"torn")
    # As a repair leaves it that has put the bytes aside and died before it cut them off.
    (root / "journal" / f"000000.cut-{len(data)}").write_bytes(b"torn")
    report = repair(case(root), SETTINGS)
    assert report.is_sound
    assert log.read_bytes() == data
    assert [path.name for path in root.glob("journal/*.cut-*")] == [f"000000.cut-{len(data)}"]


class Killed(BaseException):
    """The process ends here."""


def killed_at(number: int, patch: pytest.MonkeyPatch) -> list[str]:
    """End at operation number N that changes the disk; returns those that were performed."""
    log: list[str] = []

    def counted(name: str) -> Any:
        perform = getattr(os, name)

        def operation(*args: Any, **kwargs: Any) -> Any:
            log.append(name)
            if len(log) >= number:
                raise Killed(name)
            return perform(*args, **kwargs)

        return operation

    for name in ("write", "replace", "rename", "truncate", "unlink", "mkdir", "rmdir"):
        patch.setattr(os, name, counted(name))
    return log


def test_a_repair_may_be_killed_at_anything_that_it_does(root: Path, in_memory: Path) -> None:
    (newest_checkpoint(root) / "model.txt").write_text("changed")
    with (root / "journal" / "000000.log").open("ab") as file:
        file.write(b"torn")
    for path in [*root.glob("experiment_state-*.json"), *root.glob("*/result.json")]:
        path.write_text("{")
    for number in range(1, 1000, 7):  # a sample: every one of them was tried once
        copy = Path(shutil.copytree(root, in_memory / "copy"))
        try:
            with pytest.MonkeyPatch.context() as patch:
                log = killed_at(number, patch)
                repair(case(copy), SETTINGS)
        except Killed:
            assert repair(case(copy), SETTINGS).is_sound
            collect(case(copy), removes=True)
            assert problems(copy) == [], f"killed at operation {number}: {log[-1]}"
            shutil.rmtree(copy)
        else:
            assert number > 30
            return
    raise AssertionError("it has no end")


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


def test_nothing_of_tuner_pkl_is_unpickled(root: Path, tmp_path: Path) -> None:
    witness = tmp_path / "it was called"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(witness),)

    field = pickle.dumps(Trap())
    tuner_file.write(root / "tuner.pkl", {"trainable": StoredField(pickled=field)})
    assert verify(case(root)).findings == ()
    (root / "tuner.pkl").write_bytes(field)
    (finding,) = verify(case(root)).findings
    assert finding.kind == "tuner-file"
    assert "may only hold data" in finding.what
    repair(case(root), SETTINGS)
    assert not witness.exists()


def test_a_record_of_another_version_is_reported_and_nothing_is_changed(root: Path) -> None:
    import msgpack

    journal = Journal(root / "journal")
    journal.append([msgpack.packb(["Teleported", 1.0, {}])])
    journal.close()
    before = facts(root)
    report = verify(case(root))
    assert "journal-foreign" in kinds(report)
    assert facts(root) == before
    assert repair(case(root), SETTINGS).actions == ()
    assert collect(case(root), removes=True).actions == ()


class PausesOnce(TrialScheduler):
    """Pauses the first trial at its first report, and lets it continue when another has ended."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        first = next(iter(view.trials))
        if isinstance(event, TrialReported) and event.row["training_iteration"] == 1:
            return [PauseTrial(trial_id=first)] if event.trial_id == first else []
        return [UnpauseTrial(trial_id=first)] if event.trial_id != first else []


@pytest.fixture
def paused(in_memory: Path) -> Path:
    """A scheduler of the user's has decided in it."""
    root = in_memory / "run"
    run = RecordedExperiment(root, boot=boot_id(), options={"objects": ["scheduler"]})
    run.machine.policy = PausesOnce()
    first, second = run.begin(), run.begin()
    run.report(first, {"loss": 1.0}, checkpoint="committed")
    run.add(Exited(trial_id=first, attempt=1, cause="ended"))
    run.report(second, {"loss": 1.0})
    run.finish(second)
    run.start(first)
    run.report(first, {"loss": 0.5}, checkpoint="committed")
    run.finish(first)
    run.close()
    assert run.trial(first).attempt == 2
    Projector(run.layout, ProjectorSettings(tensorboard=False)).catch_up()
    tuner_file.write(run.layout.tuner, {"scheduler": StoredField(pickled=b"of no use here")})
    return root


def test_what_a_scheduler_of_the_users_decided_is_judged_and_mended_without_it(
    paused: Path,
) -> None:
    assert verify(case(paused)).findings == ()
    assert collect(case(paused), removes=True).actions == ()
    for path in paused.glob("*/result.json"):
        path.write_text("{}")
    assert set(kinds(verify(case(paused)))) == {"rows-behind"}
    assert repair(case(paused), SETTINGS).findings == ()
    assert checker.check(paused) == []


def test_a_journal_too_old_to_have_what_a_scheduler_decided_is_left_alone(
    in_memory: Path,
) -> None:
    root = in_memory / "old"
    run = RecordedExperiment(root, options={"objects": ["scheduler"]}, version=1)
    run.report(run.begin(), {"loss": 1.0}, checkpoint="committed")
    run.close()
    (finding,) = [f for f in verify(case(root)).findings if f.kind.startswith("journal")]
    assert finding.kind == "journal-foreign"
    assert "the decisions of the experiment's scheduler" in finding.what
    assert repair(case(root), SETTINGS).actions == collect(case(root), removes=True).actions == ()
    with pytest.raises(NotFit, match="cannot be read"):
        sync(case(root))


def test_an_empty_segment_and_a_beginning_that_never_came_are_no_damage(root: Path) -> None:
    (root / "journal" / "000001.log").write_bytes(MAGIC)
    assert verify(case(root)).findings == ()


def test_repair_says_that_there_is_nothing_here(tmp_path: Path) -> None:
    alone = DoctorTarget(shown="s3://bucket/run", layout=None, remote=None)
    with pytest.raises(NothingHere, match="s3://bucket/run"):
        repair(alone, SETTINGS)
    with pytest.raises(NothingHere, match="s3://bucket/run"):
        sync(alone)


@pytest.mark.parametrize("left", ["all", "zeros", "nothing"])
def test_records_that_were_written_again_after_a_failed_fsync_are_read_once(
    root: Path, left: str
) -> None:
    """The first segment has lost the records, or still has them."""
    ends = [at for _, at in read(root / "journal")]
    since, stop = ends[len(ends) // 2].offset, ends[-1].offset
    old = root / "journal" / segment_name(0)
    data = old.read_bytes()
    start, _ = start_of(1, [RecordSpan(0, since, stop - since)])
    (root / "journal" / segment_name(1)).write_bytes(start + data[since:])
    kept = {"all": data, "zeros": data[:since] + bytes(stop - since), "nothing": data[:since]}
    old.write_bytes(kept[left])
    # The snapshot was taken after a record that is in another place now.
    assert set(kinds(verify(case(root)))) <= {"snapshot-unusable"}
    assert repair(case(root), SETTINGS).is_sound
    assert problems(root) == []
    assert list((root / "journal").glob("*.cut-*")) == []
