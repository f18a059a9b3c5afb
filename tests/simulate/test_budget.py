"""`TuneConfig(budget=...)`: trials that end by themselves within a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import tune
from holdfast.plain_numbers import Unset
from holdfast.simulate import Simulation, simulate
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import StopReason

EPOCHS, HOUR_S = 9, 3600.0


Seconds = Callable[[Any, int], float]


def steady(config: Any, iteration: int) -> float:
    return 20.0


def by_config(config: Any, iteration: int) -> float:
    return float(10 + 20 * config["x"])


def after_imports(config: Any, iteration: int) -> float:
    return 20.0 if iteration > 1 else 200.0


def within(budget: Any, seconds: Seconds = steady, **given: Any) -> Simulation:
    return simulate(
        lambda config, iteration: {"loss": config["x"] + 1 / iteration},
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            **{"metric": "loss", "mode": "min", "num_samples": -1, "budget": budget, **given}
        ),
        workers=4,
        iterations=EPOCHS,
        seconds_per_iteration=seconds,
    )


@pytest.mark.parametrize("seconds", [steady, by_config, after_imports])
@pytest.mark.parametrize("scheduler", [None, "auto"])
def test_all_trials_end_by_themselves_and_little_time_is_left(
    seconds: Seconds, scheduler: str | None
) -> None:
    found = within("1h", seconds, scheduler=scheduler)
    why = Counter(trial.stop_reason for trial in found.trials)
    assert set(why) <= {StopReason.FINISHED, StopReason.PRUNED}
    longest_s = max(
        sum(seconds(trial.config, iteration) for iteration in range(1, EPOCHS + 1))
        for trial in found.trials
    )
    assert HOUR_S - 1.05 * longest_s < found.duration_s <= HOUR_S
    best = min(found.trials, key=lambda trial: trial.best or 9.0)
    assert best.iteration == EPOCHS


@pytest.mark.parametrize("given", [{}, {"scheduler": "auto"}, {"confirm": 2}])
def test_a_few_slow_configs_leave_little_time_unused(given: dict[str, Any]) -> None:
    def seconds(config: Any, iteration: int) -> float:
        return 150.0 if config["x"] > 0.9 else 20.0

    found = within("1h", seconds, **given)
    assert HOUR_S * 4 * 0.85 < found.busy_s <= HOUR_S * 4
    best = min(found.trials, key=lambda trial: trial.best or 9.0)
    assert best.iteration == EPOCHS


@pytest.mark.parametrize("scheduler", [None, "auto"])
def test_there_is_time_for_fresh_runs_of_the_best(scheduler: str | None) -> None:
    found = within("1h", confirm=3, scheduler=scheduler)
    times = Counter(trial.config["x"] for trial in found.trials)
    assert sorted(times.values())[-4:] == [1, 4, 4, 4]
    fresh = found.trials[-9:]
    assert {trial.stop_reason for trial in fresh} == {StopReason.FINISHED}
    assert {trial.iteration for trial in fresh} == {EPOCHS}
    assert HOUR_S - 4 * 20 * EPOCHS < found.duration_s <= HOUR_S


def test_auto_makes_as_many_trials_as_fit() -> None:
    found = within("20m", search_alg="auto", num_samples=Unset(1))
    assert 20 <= len(found.trials) <= 28


def test_a_limit_without_a_plan_stops_trials_in_the_middle() -> None:
    """Otherwise the tests above would show nothing."""
    found = simulate(
        lambda config, iteration: {"loss": 1 / iteration},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=99, time_budget_s=HOUR_S + 50
        ),
        workers=4,
        iterations=EPOCHS,
        seconds_per_iteration=20.0,
    )
    assert StopReason.BUDGET in {trial.stop_reason for trial in found.trials}


def test_a_trial_that_is_longer_than_the_budget_is_stopped_at_its_end() -> None:
    found = within("1m")
    assert {trial.stop_reason for trial in found.trials} == {StopReason.BUDGET}
    assert found.duration_s == 60


def test_a_smaller_number_of_trials_ends_the_run_sooner() -> None:
    found = within("1h", num_samples=5)
    assert len(found.trials) == 5
    assert found.duration_s < HOUR_S / 2


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [
        ("2h", 7200),
        ("90m", 5400),
        ("1h 30m", 5400),
        ("1.5h", 5400),
        ("2d", 172800),
        ("45s", 45),
        (45, 45),
        (timedelta(minutes=1), 60),
    ],
)
def test_a_budget_is_seconds_a_timedelta_or_a_text(budget: Any, seconds: float) -> None:
    assert tune.TuneConfig(budget=budget).budget_seconds == seconds


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"budget": "soon"}, "such as '2h', '90m' or '1h 30m', not 'soon'"),
        ({"budget": "2h or so"}, "not '2h or so'"),
        ({"budget": ""}, "not ''"),
        ({"budget": "0h"}, "budget must be above 0 seconds, not '0h'"),
        ({"budget": float("nan")}, "budget must be seconds or a timedelta"),
        ({"budget": "2h", "time_budget_s": 60}, "leave one of them out"),
    ],
)
def test_what_is_no_time_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        tune.TuneConfig(**given)
