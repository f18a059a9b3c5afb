"""What the doctor removes as garbage, and what it leaves."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.results.doctor.repair import collect
from holdfast.results.doctor.verify import verify
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.files.durable import boot_id
from tests.results.doctor.examined import case, kinds
from tests.rig.runs.patient import keepsakes, litter
from tests.rig.runs.recorded import RecordedExperiment


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
    (found / ".holdfast-staged").touch()
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
