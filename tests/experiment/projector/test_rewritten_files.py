"""Which files a projector writes again after a crash, a power cut and a restore."""

import random
from pathlib import Path

import pytest

from holdfast.scheduler.events import Resumed
from holdfast.trial.config import ResumeType
from tests.experiment.projector.projected import caught_up, contents, expected, live, loss_of
from tests.experiment.projector.projected import run as run
from tests.rig.runs.recorded import RecordedExperiment


@pytest.mark.parametrize("boot", ["one", "two"])
@pytest.mark.parametrize("with_snapshot", [True, False])
def test_after_a_crash_torn_files_are_right_again(
    run: RecordedExperiment, tmp_path: Path, boot: str, with_snapshot: bool
) -> None:
    live(run)
    projector = caught_up(run.layout)
    if with_snapshot:
        projector.snapshot()
    run.report(run.begin(), {"loss": 5})
    wanted = expected(run, tmp_path)
    safe = with_snapshot and boot == "one"
    done = run.layout.trial(next(iter(run.machine.trials.values())).spec)
    dice = random.Random(7)
    for _ in range(25):
        for name, data in contents(run.layout.root).items():
            path = run.layout.root / name
            if not (safe and path.parent == done):
                path.write_bytes(data[: dice.randrange(len(data))])
        caught_up(run.layout, boot)
        assert contents(run.layout.root) == wanted


def test_files_of_trials_that_had_ended_are_left_alone_after_a_crash(
    run: RecordedExperiment,
) -> None:
    live(run)
    projector = caught_up(run.layout)
    projector.snapshot()
    done = next(iter(run.machine.trials))
    path = run.folder(done) / "result.json"
    before = path.stat().st_ino
    caught_up(run.layout)
    assert path.stat().st_ino == before


def test_after_a_power_cut_all_files_are_rewritten(run: RecordedExperiment) -> None:
    live(run)
    projector = caught_up(run.layout)
    projector.snapshot()
    done = next(iter(run.machine.trials))
    (run.folder(done) / "result.json").write_bytes(b"")
    caught_up(run.layout, boot="two")
    assert loss_of(run, done) == [0, 1, 2, 3]


def test_where_the_start_of_the_system_is_not_known_all_files_are_rewritten(
    run: RecordedExperiment,
) -> None:
    live(run)
    projector = caught_up(run.layout, boot="")
    projector.snapshot()
    done = next(iter(run.machine.trials))
    (run.folder(done) / "result.json").unlink()
    caught_up(run.layout, boot="")
    assert loss_of(run, done) == [0, 1, 2, 3]


def test_a_trial_that_ended_after_the_snapshot_is_rewritten(run: RecordedExperiment) -> None:
    projector = caught_up(run.layout)
    projector.snapshot()
    trial = run.begin()
    run.report(trial, {"loss": 1})
    run.finish(trial)
    projector.catch_up()
    (run.folder(trial) / "result.json").write_bytes(b'{"los')
    caught_up(run.layout)
    assert loss_of(run, trial) == [1]


def test_a_finished_trial_that_a_restore_resumes_continues_in_its_files(
    run: RecordedExperiment,
) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1}, checkpoint="staged")
    run.report(trial, {"loss": 2})
    run.finish(trial)
    projector = caught_up(run.layout)
    projector.snapshot()
    run.add(Resumed(epoch=2, capacity={"CPU": 2}, finished=ResumeType.RESUME))
    projector = caught_up(run.layout)
    run.start(trial)
    run.report(trial, {"loss": 3})
    projector.catch_up()
    assert loss_of(run, trial) == [1, 3]


def test_what_a_restore_resumes_is_rewritten_once_and_then_continues(
    run: RecordedExperiment,
) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1}, checkpoint="staged")
    run.finish(trial)
    projector = caught_up(run.layout)
    projector.snapshot()
    run.add(Resumed(epoch=2, capacity={"CPU": 2}, finished=ResumeType.RESUME))
    projector = caught_up(run.layout)
    path = run.folder(trial) / "result.json"
    before = path.stat().st_ino
    run.start(trial)
    run.report(trial, {"loss": 3})
    projector.catch_up()
    assert (loss_of(run, trial), path.stat().st_ino) == ([1, 3], before)


def test_a_restart_from_scratch_shows_nothing_of_before(run: RecordedExperiment) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1}, checkpoint="staged")
    run.finish(trial)
    run.add(Resumed(epoch=2, capacity={"CPU": 2}, finished=ResumeType.RESTART))
    run.start(trial)
    run.report(trial, {"loss": 9})
    caught_up(run.layout)
    assert loss_of(run, trial) == [9]
