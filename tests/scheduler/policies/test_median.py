"""The median stopping rule against its definition, recomputed from all reports."""

import math
from statistics import mean, median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.effects import Reply, Verdict
from holdfast.scheduler.events import SearchEnded
from holdfast.scheduler.policies.median import MedianStoppingRule
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.trial import Status

GOAL: dict[str, Any] = {"metric": "loss", "mode": "min"}
BY_ITERATION: dict[str, Any] = {"time_attr": "training_iteration", "grace_period": 1}


def rule(**settings: Any) -> MedianStoppingRule:
    return MedianStoppingRule(**{**BY_ITERATION, **settings})


def running(count: int, scheduler: MedianStoppingRule, cpus: int | None = None) -> Rehearsal:
    run = Rehearsal(
        capacity={"CPU": float(cpus or count)},
        policy=scheduler,
        scheduler="MedianStoppingRule",
        **GOAL,
    )
    for index in range(count):
        run.suggest()
        if index < (cpus or count):
            run.start(f"t{index}")
    return run


def verdict(run: Rehearsal, trial_id: str, loss: float, **more: Any) -> Verdict:
    effects = run.report(trial_id, {"loss": loss}, **more)
    (reply,) = [effect for effect in effects if isinstance(effect, Reply)]
    return reply.verdict


def stops(history: dict[int, list[float]], trial: int, grace: int, least: int) -> bool:
    """The paper's rule for a trial that has just reported."""
    time = len(history[trial])
    others = [
        mean(losses[grace - 1 : time])
        for other, losses in history.items()
        if other != trial and len(losses) >= time >= grace
    ]
    return len(others) >= least and min(history[trial]) > median(others)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=100),
)
def test_every_stop_is_the_one_of_the_definition(
    grace: int, least: int, reports: list[tuple[int, int]]
) -> None:
    run = running(5, rule(grace_period=grace, min_samples_required=least))
    history: dict[int, list[float]] = {trial: [] for trial in range(5)}
    stopped: set[int] = set()
    for trial, loss in reports:
        if trial in stopped:
            continue
        history[trial].append(loss)
        expected = stops(history, trial, grace, least)
        assert (verdict(run, f"t{trial}", loss) is Verdict.STOP) == expected
        if expected:
            stopped.add(trial)


def test_a_trial_that_diverges_is_as_good_as_its_best_and_its_average_the_worst() -> None:
    run = running(4, rule(min_samples_required=1))
    assert verdict(run, "t0", 1.0) is Verdict.CONTINUE
    assert verdict(run, "t1", math.inf) is Verdict.STOP
    assert verdict(run, "t0", math.nan) is Verdict.CONTINUE
    assert verdict(run, "t2", 1.0) is Verdict.CONTINUE
    assert verdict(run, "t2", 9.0) is Verdict.CONTINUE


@pytest.mark.parametrize(("loss", "told"), [(2.9, Verdict.CONTINUE), (3.1, Verdict.STOP)])
def test_the_last_report_of_a_trial_that_has_ended_counts_once(loss: float, told: Verdict) -> None:
    """The average of 4 and 2 is 3. Ray counts the 2 twice, and stops at 2.67."""
    run = running(2, rule(min_samples_required=1))
    for earlier in (4.0, 2.0):
        assert verdict(run, "t1", earlier) is Verdict.CONTINUE
    run.ends("t1")
    assert verdict(run, "t0", 4.0) is Verdict.CONTINUE
    assert verdict(run, "t0", loss) is told


def test_a_trial_that_waits_for_others_to_be_judged_by_gives_way_and_returns() -> None:
    run = running(3, rule(min_time_slice=2, min_samples_required=2), cpus=1)
    assert verdict(run, "t0", 1.0, checkpoint=True) is Verdict.CONTINUE
    assert verdict(run, "t0", 1.0, checkpoint=True) is Verdict.PAUSE
    run.ends("t0")
    for trial_id in ("t1", "t2"):
        run.start(trial_id)
        run.report(trial_id, {"loss": 0.5}, checkpoint=True)
        assert run.trial("t0").status is Status.PAUSED
        run.report(trial_id, {"loss": 0.5}, checkpoint=True)
        run.ends(trial_id)
    assert run.trial("t0").status is Status.STARTING


def test_who_gave_way_continues_when_no_one_else_will_come() -> None:
    run = running(2, rule(min_time_slice=1), cpus=1)
    assert verdict(run, "t0", 1.0, checkpoint=True) is Verdict.PAUSE
    run.ends("t0")
    run.start("t1")
    run.handle(SearchEnded())
    assert run.trial("t0").status is Status.PENDING
    assert verdict(run, "t1", 1.0, checkpoint=True) is Verdict.PAUSE
    run.ends("t1")
    run.start("t0")
    assert verdict(run, "t0", 1.0, checkpoint=True) is Verdict.CONTINUE
    run.ends("t0")
    assert run.trial("t1").status is Status.STARTING


def test_a_soft_stop_is_a_pause_until_all_others_have_ended() -> None:
    run = running(2, rule(hard_stop=False, min_samples_required=1))
    run.handle(SearchEnded())
    verdict(run, "t0", 1.0, checkpoint=True)
    assert verdict(run, "t1", 5.0, checkpoint=True) is Verdict.PAUSE
    run.ends("t1")
    assert run.trial("t1").status is Status.PAUSED
    run.ends("t0")
    run.start("t1")
    assert verdict(run, "t1", 9.0, checkpoint=True) is Verdict.CONTINUE


def test_without_a_grace_period_iterations_have_none_and_seconds_have_60() -> None:
    for time_attr, judged in (("training_iteration", Verdict.STOP), ("time_total_s", None)):
        run = running(4, MedianStoppingRule(time_attr=time_attr))
        for at in range(3):
            verdict(run, f"t{at}", 1.0)
        assert verdict(run, "t3", 5.0) is (judged or Verdict.CONTINUE)


def test_only_what_pauses_needs_checkpoints() -> None:
    assert not MedianStoppingRule().needs_checkpoints
    assert rule(hard_stop=False).needs_checkpoints
    assert rule(min_time_slice=5).needs_checkpoints
