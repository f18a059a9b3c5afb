"""The searches with HEBO and nevergrad, which need older libraries than others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import nevergrad
import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.search import HEBOSearch, NevergradSearch
from tests.frameworks.searches import FLAT, Config, SearchContract, killed_and_whole, opened, ran

# Of libraries about their own calls and imports.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:Creating a tensor from a list:UserWarning"),
]


class TestHEBO(SearchContract):
    seeded: ClassVar[str] = "random_state_seed"
    count: ClassVar[int] = 9
    begun: ClassVar[int] = 4
    depends: ClassVar[int] = 1
    takes_conditions: ClassVar[bool] = False
    takes_normal: ClassVar[bool] = False

    @classmethod
    def made(cls, **given: Any) -> HEBOSearch:
        return HEBOSearch(rand_sample=cls.begun, **given)

    def test_it_finds_better_configs_than_chance_would(self, run: list[Config]) -> None:
        """A question takes seconds, and 9 are too few for 7 parameters: here is but one. By chance
        1 of 5 configs is near the best, and at least 4 of 5 are in 1 of 150 searches; of those
        that HEBO's model chose there were 5 with each of four seeds."""
        search = opened(self.made(), {"x": tune.uniform(-5, 5)})
        found = ran(search, self.begun + 5, lambda one: (one["x"] - 1) ** 2)
        near = [one for one in found[self.begun :] if abs(one["x"] - 1) < 1]
        assert len(near) >= 4


class TestNevergrad(SearchContract):
    count: ClassVar[int] = 60

    @classmethod
    def made(cls, **given: Any) -> NevergradSearch:
        return NevergradSearch(optimizer_kwargs={"budget": cls.count}, **given)


@pytest.mark.parametrize(
    "optimizer", ["TwoPointsDE", nevergrad.optimizers.PSO, nevergrad.optimizers.OnePlusOne]
)
def test_nevergrad_takes_an_optimizer_or_its_name(optimizer: Any) -> None:
    found = ran(opened(NevergradSearch(optimizer, {"budget": 12}), FLAT), 12)
    search = opened(NevergradSearch(optimizer, {"budget": 12}), FLAT)
    assert ran(search, 12) == found


def test_nevergrad_searches_numbers_without_a_known_length() -> None:
    space = {"x": tune.uniform(-5, 5), "y": tune.uniform(-5, 5)}
    found = ran(opened(NevergradSearch(), space), 12, lambda one: one["x"] ** 2)
    assert len({one["x"] for one in found}) > 6


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: NevergradSearch(optimizer=3), "optimizer must be"),
        (lambda: opened(NevergradSearch("Nothing"), FLAT), "has no 'Nothing'"),
        (lambda: HEBOSearch(max_concurrent=0), "max_concurrent"),
        (lambda: HEBOSearch(max_concurrent="2"), "max_concurrent"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        make()


def test_hebo_keeps_to_the_number_of_trials_at_once() -> None:
    search = opened(HEBOSearch(max_concurrent=2), FLAT)
    answers = [search.suggest(f"t{i}") for i in range(3)]
    assert answers[2] is None
    search.on_trial_complete("t0", None, error=True)
    assert search.suggest("t2") is not None


@pytest.mark.process
@pytest.mark.parametrize(
    ("example", "samples"),
    [
        pytest.param("nevergrad_search", 8, marks=pytest.mark.smoke),
        ("hebo_search", 5),
    ],
)
def test_an_example_that_is_killed_chooses_what_it_would_have_chosen(
    example: str, samples: int, tmp_path: Path
) -> None:
    """Its last trials are chosen by the model, and not at random."""
    after, whole = killed_and_whole(example, tmp_path, samples=samples)
    assert after == whole
    assert len(after) == samples
