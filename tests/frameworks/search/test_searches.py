"""The searches over hyperopt, bayesian-optimization, zoopt and ax-platform."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.search import (
    AxSearch,
    BayesOptSearch,
    HyperOptSearch,
    LibrarySearch,
    ZOOptSearch,
)
from tests.frameworks.searches import FLAT, Config, SearchContract, killed_and_whole, opened, ran

# Warnings of libraries about their own calls and imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


LINE = {"x": tune.uniform(-5, 5)}


def off_target(config: Config) -> float:
    return float((config["x"] - 1) ** 2)


def nearest(search: LibrarySearch, count: int) -> float:
    """How close a search over LINE comes to the point where the loss is 0."""
    return math.sqrt(min(map(off_target, ran(search, count, off_target))))


class TestHyperOpt(SearchContract):
    seeded: ClassVar[str] = "random_state_seed"
    count: ClassVar[int] = 60

    @classmethod
    def made(cls, **given: Any) -> HyperOptSearch:
        return HyperOptSearch(n_initial_points=cls.begun, **given)


class TestBayesOpt(SearchContract):
    seeded: ClassVar[str] = "random_state"
    count: ClassVar[int] = 20
    begun: ClassVar[int] = 6
    takes_conditions: ClassVar[bool] = False

    @classmethod
    def made(cls, **given: Any) -> BayesOptSearch:
        return BayesOptSearch(random_search_steps=cls.begun, **given)

    def test_it_finds_better_configs_than_chance_would(self, run: list[Config]) -> None:
        """A Gaussian process knows little of 7 parameters after 20 configs, and what it chooses
        there differs from processor to processor."""
        assert nearest(opened(self.made(), LINE), 12) < 0.1  # by chance in 1 of 5 searches


class TestZOOpt(SearchContract):
    takes_conditions: ClassVar[bool] = False

    @classmethod
    def made(cls, **given: Any) -> ZOOptSearch:
        return ZOOptSearch(budget=cls.count, parallel_num=4, **given)


class TestAx(SearchContract):
    count: ClassVar[int] = 9
    begun: ClassVar[int] = 4
    depends: ClassVar[int] = 1
    takes_normal: ClassVar[bool] = False

    @classmethod
    def made(cls, **given: Any) -> AxSearch:
        return AxSearch(initialization_budget=cls.begun, **given)

    def test_it_finds_better_configs_than_chance_would(self, run: list[Config]) -> None:
        """A question takes seconds, and 9 are too few for 7 parameters: here is but one."""
        assert nearest(opened(self.made(), LINE), 8) < 0.15  # by chance in 1 of 5 searches


@pytest.mark.parametrize("kind", ["ei", "poi"])
def test_bayesopt_takes_the_utility_that_it_is_given(kind: str) -> None:
    plain = opened(BayesOptSearch(random_search_steps=4), LINE)
    other = opened(BayesOptSearch(random_search_steps=4, utility_kwargs={"kind": kind}), LINE)
    first, second = ran(plain, 8, off_target), ran(other, 8, off_target)
    assert first[:4] == second[:4]
    assert first[4:] != second[4:]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: BayesOptSearch(utility_kwargs={"kind": "best"}), "utility_kwargs"),
        (lambda: BayesOptSearch(patience=0), "patience"),
        (lambda: BayesOptSearch(analysis=[]), "needs metric"),
        (lambda: HyperOptSearch(gamma=0), "gamma"),
        (lambda: ZOOptSearch(), "budget"),
        (lambda: ZOOptSearch(budget=3, algo="racos"), "algo"),
        (lambda: ZOOptSearch(budget=3, parallel_num=0), "parallel_num"),
        (lambda: ZOOptSearch(budget=3, parallel_num="2"), "parallel_num"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_mean_nothing_are_refused_at_once(make: Any, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        make()


def test_zoopt_waits_for_as_many_trials_as_it_is_reported() -> None:
    search = opened(ZOOptSearch(budget=9, parallel_num=2), FLAT)
    answers = [search.suggest(f"t{i}") for i in range(3)]
    assert answers[2] is None
    search.on_trial_complete("t0", None, error=True)
    assert search.suggest("t2") is not None


def test_ax_keeps_to_the_constraints() -> None:
    space = {"a": tune.uniform(0, 1), "b": tune.uniform(0, 1)}
    search = opened(
        AxSearch(parameter_constraints=["a + b <= 0.5"], initialization_budget=3), space
    )
    found = ran(search, 5, lambda one: -one["a"] - one["b"])
    assert all(one["a"] + one["b"] <= 0.5 + 1e-6 for one in found)


@pytest.mark.process
@pytest.mark.parametrize(
    ("example", "samples"),
    [
        pytest.param("hyperopt_search", 6, marks=pytest.mark.smoke),
        ("ax_search", 5),
        ("bayesopt_search", 5),
        ("bohb_search", 9),
        ("zoopt_search", 14),
    ],
)
def test_an_example_that_is_killed_chooses_what_it_would_have_chosen(
    example: str, samples: int, tmp_path: Path
) -> None:
    """Its last trials are chosen by the model, and not at random."""
    after, whole = killed_and_whole(example, tmp_path, samples=samples)
    assert after == whole
    assert len(after) == samples
