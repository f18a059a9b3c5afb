"""Configs that contain themselves, or are nested too deeply, are refused in one line."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.worker.metrics import plain_metrics
from holdfast.schema import DEEPEST
from holdfast.trial.errors import InvalidMetrics, InvalidSearchSpace
from holdfast.trial.search_space.variants import Space
from holdfast.trial.values import nesting_fault


def own_dict() -> dict[str, Any]:
    inner: dict[str, Any] = {}
    inner["self"] = inner
    return inner


def own_list() -> list[Any]:
    inner: list[Any] = [1]
    inner.append((inner,))
    return inner


def nested(levels: int) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    place = whole
    for _ in range(levels - 1):
        place["a"] = {}
        place = place["a"]
    return whole


SHARED = {"layers": [1, 2]}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (own_dict(), "self: this dict contains itself"),
        ({"net": own_list()}, "net/1/0: this list contains itself"),
        ({"net": tune.choice([1, own_dict()])}, "net/self: this dict contains itself"),
        ({"net": tune.grid_search([own_list()])}, "net/1/0: this list contains itself"),
        ({"a": SHARED, "b": SHARED, "c": [SHARED, (SHARED,)]}, ""),
        ({"a": tune.uniform(0, 1), "b": {1, 2}, "c": "text"}, ""),
    ],
)
def test_what_is_wrong_is_named_by_its_key(value: Any, fault: str) -> None:
    assert nesting_fault(value) == fault


@pytest.mark.parametrize("levels", [DEEPEST, DEEPEST + 1, 100_000])
def test_more_than_the_deepest_level_is_too_deep(levels: int) -> None:
    fault = f"a/a/a: nested more than {DEEPEST} levels deep" if levels > DEEPEST else ""
    assert nesting_fault(nested(levels)) == fault


@pytest.mark.parametrize("make", [own_dict, own_list, lambda: nested(5000)])
def test_a_tuner_refuses_such_a_search_space(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidSearchSpace, match=r"^param_space: net.*(itself|levels deep)$"):
        tune.Tuner(lambda config: None, param_space={"net": make()})


def test_a_function_that_samples_such_a_value_is_named() -> None:
    space = Space({"net": tune.sample_from(lambda spec: own_dict())})
    with pytest.raises(InvalidSearchSpace, match=r"net: sample_from: .* contains itself"):
        space.variant(0, random.Random(0))


@pytest.mark.parametrize("make", [own_dict, own_list])
def test_a_metric_that_contains_itself_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidMetrics, match=r"loss.* contains itself"):
        plain_metrics({"loss": make()})
