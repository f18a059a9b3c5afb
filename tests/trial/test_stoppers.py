"""Stop conditions: bounds, what each ready-made one ends, and repeated iterations."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.stoppers import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
    bounds_of,
    ends_all,
    is_asked,
    is_users_own,
    text_of,
    timeout_of,
    watched_by,
)


def test_a_stopper_must_say_when_and_ends_no_experiment_by_itself() -> None:
    class Forgetful(Stopper):
        pass

    with pytest.raises(NotImplementedError, match="Forgetful must define __call__"):
        Forgetful()("t0", {})
    assert Forgetful().stop_all() is False


NAN, INFINITE = math.nan, math.inf


def row(iteration: int, loss: Any = 0.0, **more: Any) -> dict[str, Any]:
    return {"training_iteration": iteration, "loss": loss, "timestamp": iteration, **more}


def end_of(stopper: Stopper, values: list[Any], trial_id: str = "t0") -> int | None:
    """The report at which `stopper` ends a trial of these values of `loss`."""
    for iteration, value in enumerate(values, start=1):
        if stopper(trial_id, row(iteration, value)):
            return iteration
    return None


def test_a_trial_ends_at_its_greatest_iteration() -> None:
    assert end_of(MaximumIterationStopper(3), [1, 2, 3, 4]) == 3
    assert end_of(MaximumIterationStopper(5), [1, 2, 3, 4]) is None


@pytest.mark.parametrize(
    ("values", "options", "end"),
    [
        ([5, 4, 1, 1, 1, 1], {}, 6),
        ([1, 1, 1, 1], {}, 4),
        ([1, 1, 1, 1, 1, 1], {"grace_period": 6}, 6),
        ([1, 1], {"num_results": 1, "grace_period": 0}, 1),
        ([1, 1.1, 1, 1.1], {"std": 0.06}, 4),
        ([1, 1.1, 1, 1.1], {"std": 0.05}, None),
        ([9, 9, 9, 9, 1, 1, 1, 1], {"metric_threshold": 5, "mode": "min"}, 8),
        ([1, 1, 1, 1, 9, 9, 9, 9], {"metric_threshold": 5, "mode": "max"}, 8),
        ([1, 1, 1, 1], {"metric_threshold": 1, "mode": "min"}, 4),
    ],
)
def test_a_trial_ends_when_its_metric_does_not_move_any_more(
    values: list[float], options: dict[str, Any], end: int | None
) -> None:
    assert end_of(TrialPlateauStopper("loss", **options), values) == end


def test_a_metric_may_be_nested() -> None:
    stopper = TrialPlateauStopper("eval/loss", num_results=2, grace_period=0)
    assert not stopper("t0", row(1, eval={"loss": 1.0}))
    assert stopper("t0", row(2, eval={"loss": 1.0}))


def test_iterations_that_are_run_again_count_once_for_a_trial() -> None:
    stopper = TrialPlateauStopper("loss", num_results=3, grace_period=0)
    for iteration, loss in [(1, 5), (2, 1), (3, 1), (2, 1), (3, 1)]:
        assert not stopper("t0", row(iteration, loss))
    assert stopper("t0", row(4, 1))


def test_a_value_that_is_not_a_number_is_never_among_the_best_and_takes_no_patience() -> None:
    stopper = ExperimentPlateauStopper("loss", top=2, patience=2)
    for iteration, loss in enumerate([1, NAN, -INFINITE, None, 1, NAN, NAN], start=1):
        assert not stopper("t0", row(iteration, loss))
    assert not stopper.stop_all()
    assert stopper("t0", row(8, 4))


def test_iterations_that_are_run_again_count_once_for_the_experiment() -> None:
    stopper = ExperimentPlateauStopper("loss", top=2)
    for _ in range(3):
        assert not stopper("t0", row(1, 1))
    assert stopper("t1", row(1, 1))


def test_a_function_is_a_stopper() -> None:
    stopper = FunctionStopper(lambda trial_id, result: result["loss"] > 2)
    assert end_of(stopper, [1, 2, 3]) == 3
    assert not stopper.stop_all()


def test_combined_stoppers_end_what_any_of_them_ends_and_all_see_every_report() -> None:
    plateau = ExperimentPlateauStopper("loss", top=3)
    stopper = CombinedStopper(NoopStopper(), MaximumIterationStopper(2), plateau)
    assert [stopper("t0", row(n, 1)) for n in (1, 2)] == [False, True]
    assert not stopper.stop_all()
    assert stopper("t1", row(1, 1))
    assert stopper.stop_all()


def test_a_timeout_is_left_to_the_machine_which_knows_when_the_experiment_was_alive() -> None:
    assert timeout_of(TimeoutStopper(timedelta(minutes=2))) == 120
    combined = CombinedStopper(TimeoutStopper(5), CombinedStopper(TimeoutStopper(3)))
    assert timeout_of(combined) == 3
    assert not is_asked(combined)
    for timestamp in (0, 100):
        assert not combined("t0", row(1, timestamp=timestamp))
    assert not combined.stop_all()


def test_within_a_stopper_of_the_users_a_timeout_counts_between_reports() -> None:
    timeout = TimeoutStopper(10)
    assert not timeout.stop_all()
    for timestamp, over in ((1000, False), (1009, False), (1010, True)):
        assert not timeout("t0", row(1, timestamp=timestamp))
        assert timeout.stop_all() is over


def test_only_what_looks_at_reports_gets_them() -> None:
    shown = [stop for stop in (None, NoopStopper(), TimeoutStopper(1)) if is_asked(stop)]
    assert shown == []
    assert not is_asked(CombinedStopper(TimeoutStopper(1), MaximumIterationStopper(1)))
    assert is_asked(CombinedStopper(TimeoutStopper(1), TrialPlateauStopper("loss")))
    assert is_asked(lambda trial_id, result: False)


def test_a_greatest_iteration_is_a_bound_to_the_machine() -> None:
    several = (MaximumIterationStopper(5), CombinedStopper(MaximumIterationStopper(3)))
    assert bounds_of(CombinedStopper(*several, OfTheUser())) == {"training_iteration": 3}
    assert [bounds_of(stop) for stop in (None, {"loss": 1}, NoopStopper())] == [
        {},
        {"loss": 1},
        {},
    ]


def test_it_is_known_what_could_end_the_whole_experiment() -> None:
    assert [ends_all(stop) for stop in (None, {"loss": 1}, NoopStopper())] == [False] * 3
    assert not ends_all(CombinedStopper(MaximumIterationStopper(1), TrialPlateauStopper("loss")))
    assert ends_all(CombinedStopper(NoopStopper(), TimeoutStopper(1)))
    assert ends_all(ExperimentPlateauStopper("loss"))


def test_code_of_the_users_is_known_by_its_name_only() -> None:
    own = (end_after_lunch, OfTheUser(), CombinedStopper(FunctionStopper(end_after_lunch)))
    assert all(map(is_users_own, own))
    assert not any(map(is_users_own, (None, {"loss": 1}, CombinedStopper(NoopStopper()))))


def test_the_metrics_that_stoppers_look_at_are_known_beforehand() -> None:
    stop = CombinedStopper(TrialPlateauStopper("a"), ExperimentPlateauStopper("b/c"))
    assert watched_by(stop) == ("a", "b/c")
    assert watched_by({"loss": 1}) == ()


def end_after_lunch(trial_id: str, result: dict[str, Any]) -> bool:
    return False


class OfTheUser(Stopper):
    def __init__(self) -> None:
        self.secret = "do not tell"


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (None, "{}"),
        ({"loss": 0.1}, "{'loss': 0.1}"),
        (MaximumIterationStopper(3), "MaximumIterationStopper(max_iter=3)"),
        (TimeoutStopper(timedelta(hours=1)), "TimeoutStopper(3600)"),
        (FunctionStopper(end_after_lunch), "FunctionStopper(end_after_lunch)"),
        (end_after_lunch, "end_after_lunch"),
        (OfTheUser(), "OfTheUser"),
        (
            CombinedStopper(ExperimentPlateauStopper("loss", patience=2), NoopStopper()),
            "CombinedStopper(ExperimentPlateauStopper(metric='loss', std=0.001, top=10, "
            "mode='min', patience=2), NoopStopper())",
        ),
    ],
)
def test_a_stop_condition_is_reported_as_it_was_written(stop: Any, text: str) -> None:
    assert text_of(stop) == text


def test_what_a_stopper_has_seen_does_not_change_how_it_is_reported() -> None:
    stopper = TrialPlateauStopper("loss")
    before = text_of(stopper)
    end_of(stopper, [1, 2, 3])
    assert text_of(stopper) == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaximumIterationStopper(0), "max_iter must be a whole number, 1 or more, not 0"),
        (lambda: MaximumIterationStopper(2.5), "max_iter must be a whole number"),  # type: ignore[arg-type]
        (lambda: MaximumIterationStopper(True), "max_iter must be a whole number"),
        (lambda: TimeoutStopper(0), "timeout must be seconds above 0, or a timedelta, not 0"),
        (lambda: TimeoutStopper("1h"), "timeout must be .* not '1h'"),
        (lambda: TimeoutStopper(timedelta(0)), "timeout must be .* not datetime.timedelta"),
        (lambda: TimeoutStopper(NAN), "timeout must be .* not nan"),
        (lambda: TrialPlateauStopper(""), "metric must be the name of a reported value, not ''"),
        (lambda: TrialPlateauStopper("loss", std=0), "std must be a number above 0, not 0"),
        (lambda: TrialPlateauStopper("loss", std=NAN), "std must be a number above 0, not nan"),
        (lambda: TrialPlateauStopper("loss", num_results=0), "num_results must be .* 1 or more"),
        (
            lambda: TrialPlateauStopper("loss", grace_period=-1),
            "grace_period must be .* 0 or more",
        ),
        (lambda: TrialPlateauStopper("loss", mode="up"), "mode must be 'min', 'max' or None"),  # type: ignore[arg-type]
        (lambda: TrialPlateauStopper("loss", metric_threshold=1), "mode must .* metric_threshold"),
        (lambda: ExperimentPlateauStopper("loss", top=1), "top must be a whole number, 2 or more"),
        (lambda: ExperimentPlateauStopper("loss", mode=None), "mode must be 'min' or 'max'"),  # type: ignore[arg-type]
        (lambda: ExperimentPlateauStopper("loss", patience=-1), "patience must be .* 0 or more"),
        (lambda: ExperimentPlateauStopper("loss", std=-1), "std must be a number above 0"),
        (lambda: FunctionStopper(3), "FunctionStopper takes a function .* not 3"),  # type: ignore[arg-type]
        (lambda: FunctionStopper(NoopStopper()), "FunctionStopper takes a function"),
        (lambda: CombinedStopper({"loss": 1}), "CombinedStopper takes Stopper objects"),  # type: ignore[arg-type]
        (lambda: RunConfig(stop=[{"loss": 1}]), "CombinedStopper takes Stopper objects"),  # type: ignore[list-item]
        (lambda: RunConfig(stop={NoopStopper()}), "one condition, not {.*CombinedStopper"),  # type: ignore[arg-type]
        (lambda: RunConfig(stop=NoopStopper), "not the class NoopStopper: call it"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_mean_anything_is_refused_and_named(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        make()


def test_a_list_of_stoppers_is_the_combination_of_them() -> None:
    first, second = NoopStopper(), MaximumIterationStopper(2)
    stop = RunConfig(stop=[first, second]).stop
    assert isinstance(stop, CombinedStopper)
    assert list(stop.stoppers) == [first, second]
