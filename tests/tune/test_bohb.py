"""`TuneBOHB`: the contract of searches, and its own budgets."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.search import LibrarySearch, TuneBOHB
from tests.frameworks.searches import SearchContract, opened, suggested

LINE = {"x": tune.uniform(0, 1)}


class TestBOHB(SearchContract):
    count: ClassVar[int] = 40

    @classmethod
    def made(cls, **given: Any) -> TuneBOHB:
        return TuneBOHB(**given)


def shown(search: LibrarySearch, trial: object, config: Any, losses: list[float]) -> None:
    """A trial from an earlier run, with a loss for each iteration."""
    search.recall(f"t{trial}", config)
    for step, loss in enumerate(losses, start=1):
        row = {"loss": loss, "training_iteration": step}
        search.on_trial_result(f"t{trial}", row)


def ended(search: LibrarySearch, trial: object, config: Any, losses: list[float]) -> None:
    shown(search, trial, config, losses)
    row = {"loss": losses[-1], "training_iteration": len(losses)}
    search.on_trial_complete(f"t{trial}", row)


def model(search: LibrarySearch) -> list[float]:
    return [suggested(search, f"new{i}")["x"] for i in range(20)]


def test_the_largest_budget_with_enough_trials_says_what_is_good() -> None:
    """After one iteration the low ones are better, after three the high ones are."""
    search = opened(TuneBOHB(bohb_config={"random_fraction": 0}), LINE)
    for trial in range(20):
        x = trial / 20
        ended(search, trial, {"x": x}, [x, x, 1 - x] if trial % 4 == 0 else [x])
    assert min(model(search)) > 0.4


def test_a_budget_with_too_few_trials_is_skipped() -> None:
    search = opened(TuneBOHB(bohb_config={"random_fraction": 0}), LINE)
    for trial in range(20):
        x = trial / 20
        ended(search, trial, {"x": x}, [x, x, 1 - x] if trial > 16 else [x])
    assert max(model(search)) < 0.6


def test_an_iteration_at_which_no_trial_has_ended_is_not_a_budget() -> None:
    """Trials that continued say nothing about those that were stopped."""
    search = opened(TuneBOHB(bohb_config={"random_fraction": 0}), LINE)
    for trial in range(20):
        x = trial / 20
        tell, losses = (shown, [x, 1 - x]) if trial % 4 == 0 else (ended, [x])
        tell(search, trial, {"x": x}, losses)
    assert max(model(search)) < 0.6


def test_failures_are_bad_at_every_budget() -> None:
    search = opened(TuneBOHB(bohb_config={"random_fraction": 0}), LINE)
    for trial in range(20):
        x = trial / 20
        if x < 0.5:
            shown(search, trial, {"x": x}, [x])
            search.on_trial_complete(f"t{trial}", {"loss": math.nan, "training_iteration": 2})
        else:
            ended(search, trial, {"x": x}, [x])
    assert min(model(search)) > 0.4


def test_no_more_trials_run_at_once_than_allowed() -> None:
    search = opened(TuneBOHB(max_concurrent=2), LINE)
    assert [search.suggest(f"t{i}") is None for i in range(3)] == [False, False, True]
    search.on_trial_complete("t0", None, error=True)
    assert search.suggest("t2") is not None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"bohb_config": {"top": 3}},
            "bohb_config has the unknown key 'top'; the keys are min_points",
        ),
        ({"bohb_config": {"random_fraction": 2}}, r"bohb_config\['random_fraction'\]"),
        ({"max_concurrent": -1}, "max_concurrent"),
        ({"max_concurrent": None}, "max_concurrent"),
    ],
)
def test_settings_that_mean_nothing_are_refused_at_once(given: Any, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        TuneBOHB(**given)
