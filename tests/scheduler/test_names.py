"""Settings that name a metric: a name that no one reports is a mistake, and is reported early."""

import math
from typing import Any

import pytest

from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.effects import Commit, Finish, Reply, Verdict, Warn
from holdfast.scheduler.events import EndOrdered
from holdfast.scheduler.machine import from_snapshot
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.best import value_of
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.trial import Status


def running(count: int = 1, **spec: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": float(count)}, **{"strict_stop": True, **spec})
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    return run


def goes_on(effects: list[Any]) -> bool:
    return isinstance(effects[-1], Reply) and effects[-1].verdict is Verdict.CONTINUE


# -- bounds -------------------------------------------------------------------------------------


def test_a_bound_that_the_first_report_lacks_ends_the_run() -> None:
    run = running(stop={"training_iteration": 5, "acurracy": 0.9})
    run.report("t0", {"accuracy": 0.5, "loss": 1})
    (finish,) = run.exits("t0")
    assert isinstance(finish, Finish)
    assert finish.reason == "abort"
    assert finish.message.startswith("RunConfig(stop={'acurracy': ...}): the first report")
    assert "Did you mean 'accuracy'?" in finish.message


def test_a_goal_and_a_bound_that_are_wrong_are_reported_together() -> None:
    run = running(metric="f1", stop={"acc": 1})
    run.report("t0", {"loss": 1})
    assert run.machine.ending is not None
    assert "TuneConfig(metric='f1') and RunConfig(stop={'acc': ...})" in run.machine.ending.message


def test_bounds_may_be_let_pass() -> None:
    run = running(stop={"acc": 1}, strict_stop=False)
    assert goes_on(run.report("t0", {"loss": 1}))


# -- what a restore may do about it -------------------------------------------------------------


def aborted() -> Rehearsal:
    run = running(metric="f1", stop={"acc": 1})
    run.report("t0", {"loss": 1}, checkpoint=True)
    run.exits("t0")
    run.crash()
    return run


def test_a_restore_asks_for_the_names_again() -> None:
    run = aborted()
    run.resume()
    run.start("t0")
    run.report("t0", {"loss": 1})
    assert run.machine.ending is not None
    assert run.machine.ending.reason == "abort"


def test_a_restore_that_is_not_strict_continues() -> None:
    run = aborted()
    run.resume(strict=False)
    run.start("t0")
    assert goes_on(run.report("t0", {"loss": 1}))
    run.crash()
    assert run.machine.expected.unseen == {}


# -- what failed -----------------------------------------------------------------------


def test_a_run_that_never_had_what_its_settings_name_failed() -> None:
    run = aborted()
    assert run.machine.finished
    assert run.machine.has_nothing


def test_a_run_that_was_interrupted_before_its_first_report_failed() -> None:
    run = running(2)
    assert run.machine.has_nothing
    run.fails("t1")
    assert run.machine.has_nothing
    run.report("t0", {"loss": 1})
    assert not run.machine.has_nothing


def test_a_mistake_that_ends_a_run_before_its_first_checkpoint_leaves_nothing_to_resume() -> None:
    run = running(2)
    run.report("t0", {"loss": 1})
    run.handle(EndOrdered(reason="abort", message="no trial saves a checkpoint"))
    assert run.machine.has_nothing


def test_a_mistake_that_ends_a_run_with_a_checkpoint_leaves_that() -> None:
    run = running(2)
    run.report("t0", {"loss": 1}, checkpoint=True)
    run.handle(EndOrdered(reason="abort", message="no trial saves a checkpoint"))
    assert not run.machine.has_nothing


def test_a_run_whose_trial_has_ended_well_came_to_something() -> None:
    run = running()
    run.ends("t0")
    assert run.trial("t0").status is Status.TERMINATED
    assert not run.machine.has_nothing


# -- the score of checkpoints -------------------------------------------------------------------


def scored(name: str) -> Rehearsal:
    return running(checkpoint=CheckpointConfig(num_to_keep=1, checkpoint_score_attribute=name))


def warnings_in(effects: list[Any]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, Warn)]


def test_a_score_that_the_first_checkpoint_lacks_is_reported_once_and_ends_nothing() -> None:
    run = scored("acurracy")
    assert warnings_in(run.report("t0", {"loss": 1})) == []
    effects = run.report("t0", {"accuracy": 0.5}, checkpoint=True)
    assert isinstance(effects[0], Commit)
    assert goes_on(effects)
    (text,) = warnings_in(effects)
    assert "Did you mean 'accuracy'?" in text
    assert warnings_in(run.report("t0", {"accuracy": 0.5}, checkpoint=True)) == []


def test_it_is_not_reported_again_after_a_restore() -> None:
    run = scored("acurracy")
    run.report("t0", {"accuracy": 0.5}, checkpoint=True)
    assert from_snapshot(snapshot(run.machine)).expected.score_checked
    run.crash()
    run.resume()
    run.start("t0")
    assert warnings_in(run.report("t0", {"accuracy": 0.5}, checkpoint=True)) == []


@pytest.mark.parametrize("value", [1, float("nan"), None])
def test_a_score_that_is_nan_or_none_is_not_a_mistake(value: Any) -> None:
    run = scored("score")
    assert warnings_in(run.report("t0", {"score": value}, checkpoint=True)) == []
    assert warnings_in(run.report("t0", {"loss": 1}, checkpoint=True)) == []


def test_a_checkpoint_without_a_report_is_looked_at_too() -> None:
    run = scored("acurracy")
    run.report("t0", {"accuracy": 0.5})
    assert len(warnings_in(run.save("t0"))) == 1


# -- names of holdfast ----------------------------------------------------------------------------


def test_metrics_with_names_of_holdfast_are_reported_once_with_both_values() -> None:
    run = running(2)
    effects = run.report("t0", {"loss": 1, "training_iteration": 7, "trial_id": "mine"})
    assert goes_on(effects)
    (text,) = warnings_in(effects)
    assert "training_iteration=7, trial_id='mine'" in text
    assert "training_iteration=1, trial_id='t0'" in text
    for trial in ("t0", "t1"):
        assert warnings_in(run.report(trial, {"training_iteration": 7})) == []


@pytest.mark.parametrize("value", [[1, 2, 3], "0.5", None, True])
def test_a_first_report_whose_metric_is_not_a_number_ends_the_run(value: Any) -> None:
    run = running(metric="loss", strict_kind=True)
    run.report("t0", {"loss": value})
    assert run.machine.ending is not None
    assert "not a number" in run.machine.ending.message
    assert run.machine.has_nothing


def test_journals_of_earlier_versions_accept_any_value_of_the_metric() -> None:
    run = running(metric="loss")
    assert goes_on(run.report("t0", {"loss": [1, 2, 3]}))


def test_a_metric_that_is_nan_at_once_is_warned_about() -> None:
    run = running(2, metric="loss", strict_kind=True)
    warned = [one for one in run.report("t0", {"loss": math.nan}) if isinstance(one, Warn)]
    assert ["loss is NaN in the first report" in one.text for one in warned] == [True]
    assert not [one for one in run.report("t1", {"loss": math.nan}) if isinstance(one, Warn)]


def test_a_last_report_without_the_goal_leaves_the_value_of_the_report_before() -> None:
    run = running(metric="loss", mode="min", strict_kind=True)
    for row, value in (
        ({"loss": 2.0}, 2.0),
        ({"test": 0.9}, 2.0),
        ({"test": 0.8}, 2.0),
        ({"loss": 1.0}, 1.0),
        ({"loss": math.nan}, None),
    ):
        run.report("t0", row)
        restored = from_snapshot(snapshot(run.machine)).trials["t0"]
        assert value_of(run.trial("t0"), "loss") == value_of(restored, "loss") == value


def test_an_attempt_that_starts_again_has_no_value_of_the_one_before() -> None:
    run = running(metric="loss", mode="min", failure=FailureConfig(max_failures=1))
    run.report("t0", {"loss": 2.0})
    run.report("t0", {"test": 0.9})
    run.fails("t0")
    run.exits("t0")
    run.start("t0")
    assert run.trial("t0").attempt == 2
    run.report("t0", {"test": 0.9})
    assert value_of(run.trial("t0"), "loss") is None
