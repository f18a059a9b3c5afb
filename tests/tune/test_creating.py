"""Search algorithms and trial schedulers by their short names."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig
from holdfast.tune import schedulers
from holdfast.tune.search import BasicVariantGenerator


@pytest.mark.parametrize(
    ("name", "given", "made"),
    [
        ("fifo", {}, "FIFOScheduler"),
        ("auto", {}, "AutoScheduler"),
        ("asha", {"max_t": 9}, "ASHAScheduler"),
        ("async_hyperband", {}, "AsyncHyperBandScheduler"),
        ("AsyncHyperBand", {}, "AsyncHyperBandScheduler"),
        ("median_stopping_rule", {"hard_stop": False}, "MedianStoppingRule"),
        ("medianstopping", {}, "MedianStoppingRule"),
        ("hyperband", {"max_t": 9}, "HyperBandScheduler"),
        ("hb_bohb", {}, "HyperBandForBOHB"),
        ("dehb", {}, "DEHBScheduler"),
        ("pasha", {}, "PASHAScheduler"),
        ("mo_asha", {"metrics": ["a", "b"], "modes": ["min"] * 2}, "MultiObjectiveASHAScheduler"),
        ("resource_changing", {}, "ResourceChangingScheduler"),
    ],
)
def test_a_short_name_makes_the_scheduler_with_what_is_given(
    name: str, given: dict[str, Any], made: str
) -> None:
    assert type(tune.create_scheduler(name, **given)) is getattr(schedulers, made)


@pytest.mark.parametrize("name", ["pbt", "pbt_replay", "pb2"])
def test_a_short_name_leads_to_a_class_that_says_what_it_lacks(name: str) -> None:
    with pytest.raises((InvalidConfig, TypeError)):
        tune.create_scheduler(name)


def test_an_unknown_scheduler_is_reported_with_those_that_there_are_and_those_that_are_near() -> (
    None
):
    with pytest.raises(
        InvalidConfig, match=r"no scheduler 'medianstoping', only auto, fifo, .*pb2"
    ) as e:
        tune.create_scheduler("medianstoping")
    assert "Did you mean 'medianstopping'" in str(e.value)


def test_an_unknown_setting_is_reported_with_the_class() -> None:
    with pytest.raises(TypeError, match=r"MedianStoppingRule.*'patience'"):
        tune.create_scheduler("medianstopping", patience=3)


@pytest.mark.parametrize("name", ["random", "variant_generator"])
def test_a_short_name_makes_the_search_with_what_is_given(name: str) -> None:
    search = tune.create_searcher(name, max_concurrent=3)
    assert isinstance(search, BasicVariantGenerator)
    assert search.max_concurrent == 3


def test_an_unknown_name_is_reported_with_those_that_there_are() -> None:
    with pytest.raises(
        InvalidConfig, match=r"no search algorithm 'grid', only auto, ax, .*optuna.*zoopt"
    ):
        tune.create_searcher("grid")
    with pytest.raises(InvalidConfig, match=r"Did you mean 'optuna'\?"):
        tune.create_searcher("optun")
