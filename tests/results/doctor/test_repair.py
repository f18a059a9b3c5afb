"""What the doctor repairs on one machine, what it keeps aside, and what it leaves alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import pack
from holdfast.experiment.records.recovery import recover
from holdfast.experiment.user_objects import tuner_file
from holdfast.results.doctor.findings import Remedy, Severity
from holdfast.results.doctor.repair import NothingHere, collect, repair
from holdfast.results.doctor.upload import sync
from holdfast.results.doctor.verify import verify
from holdfast.results.reading import ExperimentSite
from holdfast.scheduler.events import CheckpointLost
from holdfast.syncer.files.durable import boot_id
from holdfast.syncer.journal.journal import Journal, read, segment_name, segments
from holdfast.syncer.journal.segment import RecordSpan, start_of
from holdfast.trial.trial import checkpoint_dirname
from tests.results.doctor.examined import SETTINGS, case, kinds, newest_checkpoint
from tests.rig import checker
from tests.rig.runs.patient import HURTS, PLACES, healthy, hurt
from tests.rig.runs.recorded import RecordedExperiment

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


def problems(root: Path) -> list[str]:
    """What the checker reports, or why it cannot read."""
    try:
        return checker.check(root, ended=True, tensorboard=True)
    except (ValueError, KeyError, TypeError, OSError, IndexError) as error:
        return [f"{type(error).__name__}: {error}"]


def test_a_checkpoint_that_lost_its_manifest_is_dropped_for_nothing_proves_it(root: Path) -> None:
    broken = newest_checkpoint(root)
    (broken / ".holdfast.json").unlink()
    report = repair(case(root), SETTINGS)
    assert [action.where for action in report.actions] == [broken.parent.name]
    assert "there is no manifest" in report.actions[0].what
    trial = recover(Layout(root)).machine.trials["d2a66_00000"]
    assert [record.index for record in trial.checkpoints] == [0, 1, 2]
    assert broken.is_dir()  # nothing shows that it is not the script's own
    assert kinds(report) == []


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


def test_repair_says_that_there_is_nothing_here(tmp_path: Path) -> None:
    alone = ExperimentSite(shown="s3://bucket/run", layout=None, remote=None)
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
