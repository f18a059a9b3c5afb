"""Bounds, nested names, and the interface of stop functions."""

from typing import Any

import pytest

from holdfast.trial.metrics import lookup, reaches
from holdfast.trial.stoppers import Stopper

ROW = {"loss": 0.5, "eval": {"loss": 0.25, "best": {"at": 3}}, "eval/acc": 0.75, "nothing": None}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("loss", 0.5),
        ("eval/loss", 0.25),
        ("eval/best/at", 3),
        ("eval/acc", 0.75),
        ("eval", ROW["eval"]),
        ("nothing", None),
        ("missing", None),
        ("eval/missing", None),
        ("loss/more", None),
        ("", None),
    ],
)
def test_a_name_leads_to_its_value_also_a_nested_one(key: str, value: Any) -> None:
    assert lookup(ROW, key) == value


@pytest.mark.parametrize(
    ("criteria", "reached"),
    [
        ({}, None),
        ({"loss": 0.5}, "loss"),
        ({"loss": 0.51}, None),
        ({"loss": -1}, "loss"),
        ({"missing": 0}, None),
        ({"nothing": 0}, None),
        ({"eval": 0}, None),
        ({"eval/best/at": 3}, "eval/best/at"),
        ({"loss": 9, "eval/acc": 0.7}, "eval/acc"),
        ({"loss": float("inf")}, None),
    ],
)
def test_a_bound_is_reached_from_below(criteria: dict[str, float], reached: str | None) -> None:
    assert reaches(ROW, criteria) == reached


@pytest.mark.parametrize(
    ("value", "bound", "is_reached"),
    [
        (True, True, True),
        (False, True, False),
        (1, True, True),
        (0, True, False),
        (False, False, True),
        (True, False, False),
        (True, 1, True),
        ("yes", True, False),
    ],
)
def test_a_truth_value_is_reached_by_its_like(value: Any, bound: Any, is_reached: bool) -> None:
    assert (reaches({"done": value}, {"done": bound}) == "done") is is_reached


def test_nan_reaches_nothing() -> None:
    assert reaches({"loss": float("nan")}, {"loss": 0}) is None


def test_a_stopper_must_say_when_and_ends_no_experiment_by_itself() -> None:
    class Forgetful(Stopper):
        pass

    with pytest.raises(NotImplementedError, match="Forgetful must define __call__"):
        Forgetful()("t0", {})
    assert Forgetful().stop_all() is False
