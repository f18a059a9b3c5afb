"""Stops, a limit, more trials, added configs and notes, as a person orders them during a run."""

from holdfast.scheduler.effects import Finish, Halt, Suggest, Warn
from holdfast.scheduler.events import (
    ConfigRefused,
    EndOrdered,
    LimitChanged,
    NoteWritten,
    SamplesAdded,
    SearchEnded,
    SearchWaits,
)
from holdfast.scheduler.steering import refusal
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import FailureConfig
from holdfast.trial.trial import Status, StopReason
from tests.scheduler.steering.orders import BY, added, launched, pause, paused, running, stop


def is_complete(run: Rehearsal) -> bool:
    return run.machine.is_complete


def test_a_running_trial_stops_and_says_who_stopped_it() -> None:
    run = running()
    run.report("t0", {"loss": 1.0})
    assert Halt(trial_id="t0", attempt=1) in run.handle(stop("t0"))
    assert run.trial("t0").status is Status.STOPPING
    run.ends("t0")
    trial = run.trial("t0")
    assert trial.status is Status.TERMINATED
    assert trial.stop is not None
    assert (trial.stop.reason, trial.stop.by) == (StopReason.USER, BY)
    assert trial.stop.why == "stopped by ann (page)"
    assert trial.stop.reason.is_early
    assert trial.row == {"loss": 1.0}


def test_a_trial_that_waits_ends_at_once_and_the_next_starts() -> None:
    run = running()
    run.suggest()  # t1 waits
    assert run.handle(stop("t1")) == []
    assert run.trial("t1").status is Status.TERMINATED
    assert not run.machine.placement.queue


def test_a_paused_trial_can_be_stopped_and_the_run_finishes() -> None:
    run = paused()
    assert run.handle(stop("t0")) == [Finish(reason="done")]
    assert run.trial("t0").status is Status.TERMINATED


def test_a_trial_that_waits_before_its_retry_can_be_stopped() -> None:
    run = running(failure=FailureConfig(max_failures=1, retry_wait_s=60))
    run.handle(SearchEnded())
    run.fails("t0")
    run.exits("t0")
    assert run.handle(stop("t0")) == [Finish(reason="done")]
    run.waited("t0")


def test_the_stop_of_a_trial_that_pauses_is_stronger_than_the_pause() -> None:
    run = running()
    run.handle(pause("t0"))
    run.handle(stop("t0"))
    run.ends("t0")
    assert run.trial("t0").status is Status.TERMINATED
    assert not run.trial("t0").is_held


def test_a_higher_limit_starts_trials_and_a_lower_one_stops_none() -> None:
    run = Rehearsal(capacity={"CPU": 8}, max_concurrent=1)
    run.suggest()
    run.start("t0")
    assert not run.machine.asking
    effects = run.handle(LimitChanged(max_concurrent=3, by=BY))
    assert effects == [Suggest(index=1)]
    run.suggest()
    run.suggest()
    assert len(run.machine.placement.holds) == 3
    assert run.handle(LimitChanged(max_concurrent=1, by=BY)) == []
    assert len(run.machine.placement.holds) == 3
    run.ends("t0")
    assert len(run.machine.placement.holds) == 2
    assert run.machine.spec.options["said"] == {"max_concurrent": 1}
    assert run.handle(LimitChanged(max_concurrent=None, by=BY))
    assert run.machine.spec.max_concurrent is None


def test_more_samples_open_the_search_again() -> None:
    run = running(num_samples=1)
    run.handle(SearchEnded())
    assert is_complete(run)
    run.handle(SamplesAdded(count=2, by=BY, total=3))
    spec = run.machine.spec
    assert (spec.num_samples, spec.options) == (3, {"said": {"num_samples": 1}, "trials": 3})
    assert not is_complete(run)
    assert not run.machine.search_ended
    assert run.ends("t0") == [Suggest(index=1)]


def test_more_samples_after_the_end_are_refused() -> None:
    run = running(num_samples=1)
    run.handle(SearchEnded())
    run.ends("t0")
    order = SamplesAdded(count=2, by=BY)
    assert refusal(run.machine, order) == "the run has finished"
    assert run.handle(order) == []
    assert run.machine.spec.num_samples == 1


def test_an_added_config_becomes_a_trial_that_starts_before_those_that_wait() -> None:
    run = running()
    run.suggest()
    assert run.handle(added()) == [Suggest(index=2, config={"lr": 0.5})]
    run.suggest(is_added=True)
    assert list(run.machine.placement.queue) == ["t2", "t1"]
    assert launched(run.ends("t0")) == ["t2"]


def test_several_added_configs_are_asked_for_one_after_the_other() -> None:
    run = running()
    run.handle(added(0.1))
    assert run.handle(added(0.2)) == []
    effects = run.suggest(is_added=True)
    assert Suggest(index=2, config={"lr": 0.2}) in effects
    run.suggest(is_added=True)
    assert run.machine.configs == ()


def test_an_added_config_runs_after_the_search_has_ended_and_while_it_waits() -> None:
    run = running()
    run.handle(SearchEnded())
    run.handle(added())
    assert not run.machine.finished
    run.ends("t0")
    assert not run.machine.finished
    assert launched(run.suggest(is_added=True)) == ["t1"]
    assert run.machine.search_ended
    run.start("t1")
    assert run.ends("t1") == [Finish(reason="done")]

    run = running()
    run.ends("t0")
    run.handle(SearchWaits())
    run.handle(added())
    assert launched(run.suggest(is_added=True)) == ["t1"]
    assert run.machine.asking
    assert run.machine.search_waits


def test_an_added_config_that_makes_no_trial_is_a_warning() -> None:
    run = running()
    run.handle(SearchEnded())
    run.handle(added())
    run.ends("t0")
    warning, finish = run.handle(ConfigRefused(why="ValueError: too large"))
    assert warning == Warn(
        text="The added config {'lr': 0.5} makes no trial: ValueError: too large"
    )
    assert finish == Finish(reason="done")


def test_an_added_config_survives_a_crash_and_the_end_of_the_run() -> None:
    run = running()
    run.handle(added())
    run.crash()
    assert Suggest(index=1, config={"lr": 0.5}) in run.resume()
    run.crash()
    run.resume()
    run.handle(EndOrdered(reason="interrupt"))
    run.exits("t0")
    run.crash()
    assert Suggest(index=1, config={"lr": 0.5}) in run.resume()


def test_a_note_replaces_the_former_one_also_after_the_trial_has_ended() -> None:
    run = running()
    run.handle(NoteWritten(trial_id="t0", text="odd", by=BY))
    run.ends("t0")
    run.handle(NoteWritten(trial_id="t0", text="its data was wrong", by=BY))
    assert run.trial("t0").note == "its data was wrong"
    run.crash()
    run.resume()
    assert run.trial("t0").note == "its data was wrong"
    run.handle(NoteWritten(trial_id="t0", text="", by=BY))
    assert run.trial("t0").note == ""
