"""A metric that a setting names and no report has: detected, and reported with similar names."""

from typing import Any

import pytest

from holdfast.trial.metrics import (
    absent_from_first_report,
    has_metric,
    unscored,
)

ROW: dict[str, Any] = {"accuracy": 0.5, "eval": {"f1": None, "all": [1]}, "training_iteration": 1}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("accuracy", True),
        ("eval", True),
        ("eval/f1", True),
        ("eval/f2", False),
        ("evil/f1", False),
        ("accuracy/f1", False),
        ("acurracy", False),
        ("done", True),
        ("", False),
    ],
)
def test_a_name_is_there_whatever_its_value_is(name: str, found: bool) -> None:
    assert has_metric(ROW, name) is found


def test_two_wrong_settings_are_reported_at_once_with_the_ways_to_leave() -> None:
    settings = {"TuneConfig(metric='acurracy')": "acurracy", "RunConfig(stop={'lss': ...})": "lss"}
    text = absent_from_first_report(settings, {**ROW, "loss": 1}, {"accuracy": 0.5, "loss": 1})
    assert text.startswith("TuneConfig(metric='acurracy') and RunConfig(stop={'lss': ...}): ")
    assert "Did you mean 'accuracy' or 'loss'?" in text
    assert "Reported: accuracy, loss." in text
    assert "TUNE_DISABLE_STRICT_METRIC_CHECKING=1" in text
    assert text.endswith("correct the names")


@pytest.mark.parametrize(
    ("value", "kind"),
    [("high", "a str"), (True, "a bool"), ({"f1": 1}, "a dict"), ([1], "a list")],
)
def test_a_score_that_can_be_no_number_is_reported(value: object, kind: str) -> None:
    text = unscored("score", {"score": value}, {"score": value})
    assert "checkpoint_score_attribute='score'" in text
    assert f"has {kind} there, not a number" in text


def test_a_score_of_another_name_is_reported_with_what_is_near() -> None:
    text = unscored("acurracy", ROW, {"accuracy": 0.5})
    assert "checkpoint_score_attribute='acurracy'" in text
    assert "Did you mean 'accuracy'?" in text
    assert text.endswith("Reported: accuracy")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1, 2.0, 3], "loss is a list of 3 numbers, not a number."),
        (["a"], "loss is a list of 1 value, not a number."),
        ("0.5", "loss is the text '0.5', not a number."),
        (None, "loss is None, not a number."),
        ({"train": 1}, "loss holds train: name one of them, as in 'loss/...'."),
    ],
)
def test_a_metric_that_is_not_a_number_is_reported_as_what_it_is(value: object, said: str) -> None:
    row = {"loss": value}
    text = absent_from_first_report({"TuneConfig(metric='loss')": "loss"}, row, row)
    assert text.startswith(f"TuneConfig(metric='loss'): {said}")
    assert "no such value" not in text
