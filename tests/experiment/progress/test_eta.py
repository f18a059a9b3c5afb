"""Estimates of the end of a run, and the data that they need."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.experiment.progress.eta import (
    Course,
    Past,
    Throughput,
    epochs_of,
    last_iteration,
    share_done,
    time_left_s,
)
from holdfast.trial.trial import Trial, TrialSpec

NONE = Past()
ALIKE = Past(lengths_s=(10.0,) * 4)


def course(spent_s: float = 0.0, **fields: Any) -> Course:
    known = {"since_s": 0.0, "iteration": 0, "last": None, "at_work": True, **fields}
    return Course(spent_s=spent_s, **known)


def trial(config: dict[str, Any], row: dict[str, Any] | None = None, iteration: int = 3) -> Trial:
    spec = TrialSpec(trial_id="a", index=0, name="a", dirname="a", config=config)
    return Trial(spec=spec, row=row, iteration=iteration)


def expected(config: dict[str, Any], bound: float | None = None, **fields: Any) -> int | None:
    return last_iteration(trial(config, **fields), bound, epochs_of(config))


def test_without_any_ground_nothing_is_estimated() -> None:
    assert time_left_s([], NONE, to_come=5, slots=1) is None
    assert time_left_s([course(4.0, iteration=2)], NONE, to_come=0, slots=1) is None
    assert share_done(course(4.0, iteration=2), NONE) == 0.0


def test_one_of_which_nothing_is_known_spoils_the_estimate_of_all() -> None:
    known, unknown = course(4.0, iteration=2, last=4), course(4.0, iteration=2)
    assert time_left_s([known], NONE, to_come=0, slots=1) == pytest.approx(4.0)
    assert time_left_s([known, unknown], NONE, to_come=0, slots=2) is None


def test_what_is_left_follows_from_the_iterations_and_shrinks_between_two_reports() -> None:
    at_report = course(6.0, iteration=3, last=10)
    assert time_left_s([at_report], NONE, to_come=0, slots=1) == pytest.approx(14.0)
    later = course(6.0, since_s=1.5, iteration=3, last=10)
    assert time_left_s([later], NONE, to_come=0, slots=1) == pytest.approx(12.5)
    stuck = course(6.0, since_s=500.0, iteration=3, last=10)
    assert time_left_s([stuck], NONE, to_come=0, slots=1) == pytest.approx(12.0)


def test_a_paused_trial_waits_for_a_slot_with_what_it_has_left() -> None:
    trials = [course(5.0), course(8.0, at_work=False)]
    assert time_left_s(trials, ALIKE, to_come=0, slots=1) == pytest.approx(7.0)


def test_a_long_queue_comes_to_the_same_as_one_dealt_out() -> None:
    left_s = time_left_s([course(5.0)] * 8, ALIKE, to_come=8_000, slots=8)
    assert left_s == pytest.approx(5.0 + 1_000 * 10.0)


def test_what_the_start_of_a_trial_takes_is_added_to_those_that_come() -> None:
    left_s = time_left_s([course(5.0)], ALIKE, to_come=2, slots=1, overhead_s=3.0)
    assert left_s == pytest.approx(5.0 + 2 * 13.0)


def test_expected_iterations_are_believed_as_far_as_others_have_kept_to_them() -> None:
    running = course(5.0, iteration=1, last=100)
    kept = Past(lengths_s=(10.0,), kept=1)
    broken = Past(lengths_s=(10.0,), broken=1)
    assert time_left_s([running], kept, to_come=0, slots=1) == pytest.approx(495.0)
    assert time_left_s([running], broken, to_come=0, slots=1) == pytest.approx(5.0)


def test_the_last_iteration_is_that_of_stop_or_the_number_of_epochs() -> None:
    assert expected({}) is None
    assert expected({}, 7.0) == 7
    assert expected({"num_epochs": 5}) == 5
    assert expected({"num_epochs": 5}, 4.0) == 4
    assert expected({"train_loop_config": {"epochs": 6}}) == 6
    assert expected({"epochs": "many"}) is None
    assert expected({"epochs": True}) is None


def test_a_number_of_epochs_counts_only_where_each_is_reported_once() -> None:
    config = {"epochs": 5}
    assert expected(config, row={"epoch": 2}) == expected(config, row={"epoch": 3}) == 5
    assert expected(config, row={"epoch": 0}) is None
    assert expected(config, iteration=6) is None


def test_the_time_of_a_trial_without_training_is_measured_since_this_incarnation_began() -> None:
    seen = Throughput()
    seen.record(1000.0, 2, 50, 900.0)
    assert seen.overhead_s == 0.0
    # Two slots for 10 s: 12 s were training, the rest is what three ended and two begun took.
    seen.record(1010.0, 2, 53, 912.0)
    assert seen.overhead_s == pytest.approx(8.0 / 5)
