"""Messages about trials that a person has paused."""

from holdfast.experiment.progress.wording import HeldNews
from holdfast.scheduler.events import PauseRequested, ResumeRequested, SearchEnded
from holdfast.testing.rehearsal import Rehearsal

NEWS = HeldNews(resume="holdfast resume /runs/a", stop="holdfast stop /runs/a")


def test_a_run_in_which_only_paused_trials_are_left_says_what_to_do() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    run.suggest()
    run.handle(SearchEnded())
    run.start("t0")
    run.handle(PauseRequested(trial_id="t1", by="ann"))
    assert NEWS.after(run.machine) == []  # the order was answered already
    run.handle(PauseRequested(trial_id="t0", by="ann"))
    run.report("t0", checkpoint=True)
    assert NEWS.after(run.machine) == []
    run.returns("t0")
    run.exits("t0")
    assert NEWS.after(run.machine) == ["trial t0 is paused at iteration 1"]
    assert NEWS.waiting(run.machine) == (
        "2 trials are paused: holdfast resume /runs/a TRIAL, or holdfast stop /runs/a"
    )
    run.handle(ResumeRequested(trial_id="t0", by="ann"))
    assert NEWS.waiting(run.machine) == ""
    run.start("t0")
    run.ends("t0")
    assert NEWS.waiting(run.machine).startswith("1 trial is paused: ")
