"""What callbacks of frameworks report, and when they save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.train.reporting import Metrics, RoundReports, check_metrics, chosen, saved
from holdfast.trial.errors import InvalidConfig, InvalidMetrics

FOUND = {"train-loss": 0.5, "valid-loss": 0.7}


@pytest.mark.parametrize(
    ("metrics", "row"),
    [
        (None, FOUND),
        ("valid-loss", {"valid-loss": 0.7}),
        (["train-loss"], {"train-loss": 0.5}),
        ({"loss": "valid-loss"}, {"loss": 0.7}),
        ([], {}),
    ],
)
def test_metrics_are_chosen_by_name(metrics: Metrics, row: dict[str, float]) -> None:
    check_metrics(metrics)
    assert chosen(FOUND, metrics) == row


def test_a_metric_that_is_not_there_is_reported_with_those_that_are() -> None:
    told = "no 'loss' to report; what there is: 'train-loss', 'valid-loss'"
    with pytest.raises(InvalidMetrics, match=told):
        chosen(FOUND, {"mine": "loss"})
    with pytest.raises(InvalidMetrics, match="what there is: nothing"):
        chosen({}, "loss")


def test_a_checkpoint_without_the_file_is_reported_with_those_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "mine.ubj").touch()
    (tmp_path / ".holdfast.json").touch()
    checkpoint = Checkpoint.from_directory(tmp_path)
    with saved(checkpoint, "mine.ubj") as path:
        assert path == str(tmp_path / "mine.ubj")
    told = r"no 'model.ubj' in .*; what there is: 'mine.ubj'\. .*filename="
    with pytest.raises(FileNotFoundError, match=told), saved(checkpoint, "model.ubj"):
        pass


@pytest.mark.parametrize("metrics", [3, [3], {"a", "b"}])
def test_what_is_not_a_choice_of_metrics_is_refused(metrics: Any) -> None:
    with pytest.raises(InvalidConfig, match="must be a name, a list of names, or a dict"):
        check_metrics(metrics)


def reports(**given: Any) -> RoundReports:
    usual = {"frequency": 0, "checkpoint_at_end": True, "results_postprocessing_fn": None}
    return RoundReports(metrics=None, filename="model", **{**usual, **given})


@pytest.mark.parametrize(
    ("given", "saved"),
    [
        ({}, [5]),
        ({"checkpoint_at_end": False}, []),
        ({"frequency": 2}, [2, 4, 5]),
        ({"frequency": 2, "checkpoint_at_end": False}, [2, 4]),
        ({"frequency": 5}, [5]),
    ],
)
def test_rounds_are_saved_by_frequency_and_the_last_one(
    given: dict[str, Any], saved: list[int]
) -> None:
    made = reports(**given)
    assert [r for r in range(1, 6) if made.saves(r, is_last=r == 5)] == saved


def test_what_is_reported_may_be_changed_but_not_into_anything() -> None:
    assert reports(results_postprocessing_fn=lambda row: {"n": len(row)}).row(FOUND) == {"n": 2}
    with pytest.raises(InvalidMetrics, match="must return a dict of metrics, not 3"):
        reports(results_postprocessing_fn=lambda row: 3).row(FOUND)
