"""Which files a projector writes again after a crash, a power cut and a restore."""

from holdfast.scheduler.events import Resumed
from holdfast.trial.config import ResumeType
from tests.experiment.projector.projected import caught_up, live, loss_of
from tests.experiment.projector.projected import run as run
from tests.rig.runs.recorded import RecordedExperiment


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


def test_a_restart_from_scratch_shows_nothing_of_before(run: RecordedExperiment) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1}, checkpoint="staged")
    run.finish(trial)
    run.add(Resumed(epoch=2, capacity={"CPU": 2}, finished=ResumeType.RESTART))
    run.start(trial)
    run.report(trial, {"loss": 9})
    caught_up(run.layout)
    assert loss_of(run, trial) == [9]
