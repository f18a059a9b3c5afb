"""`holdfast compare`: which parameters differ, which side is best, and how sides are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.view import ExperimentView
from holdfast.results.comparison import Comparison, compare, split_trial
from holdfast.results.logs import NoSuchTrial
from holdfast.results.reading import find
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.description import describe
from tests.rig.runs.recorded import RecordedExperiment


def recorded(root: Path, losses: list[list[float]], *, metric: str | None = "loss") -> None:
    """A trial for each curve, whose `lr` is its number; all have the same batch."""
    mode = "min" if metric else None
    run = RecordedExperiment(root, metric=metric, mode=mode)
    for number, curve in enumerate(losses):
        trial = run.begin({"lr": float(number), "net": {"width": 8}, "batch": 64})
        for loss in curve:
            run.report(trial, {"loss": loss})
        run.finish(trial)
    run.write_files(snapshot=True)
    run.ends()


def found(root: Path) -> ExperimentView:
    return find(str(root), Settings.read({}), os.environ)


@pytest.fixture
def two(tmp_path: Path) -> list[ExperimentView]:
    recorded(tmp_path / "slow", [[3.0, 2.0], [4.0, 1.0]])
    recorded(tmp_path / "fast", [[0.5, 0.25], [9.0, 9.0]])
    return [found(tmp_path / "slow"), found(tmp_path / "fast")]


def of(made: Comparison) -> list[tuple[str, str | None, float | None]]:
    return [(s.label, s.trial.trial_id if s.trial else None, s.value) for s in made.sides]


def test_experiments_are_compared_by_their_best_trials(two: list[ExperimentView]) -> None:
    made = compare([(one, None) for one in two], now=0.0)
    assert of(made) == [("slow", "d2a66_00001", 1.0), ("fast", "d2a66_00000", 0.25)]
    assert (made.metric, made.mode) == ("loss", "min")
    assert made.best is made.sides[1]
    assert made.differing == ("lr",)
    assert made.same == {"net/width": 8, "batch": 64}
    assert (made.sides[0].curve.xs, made.sides[0].curve.ys) == ([1, 2], [4.0, 1.0])
    worst = compare([(one, None) for one in two], now=0.0, mode="max")
    assert [side.value for side in worst.sides] == [2.0, 9.0]
    assert worst.best is worst.sides[1]


def test_what_differs_in_how_experiments_search_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, scheduler, upper, data in (
        ("asha", "ASHAScheduler", 0.1, "v3"),
        ("median", "MedianStoppingRule", 1.0, "v3"),
    ):
        space = tuple(describe({"lr": tune.uniform(0, upper), "depth": tune.choice([1, 2])}))
        options = {"search": "OptunaSearch", "tags": {"data": data, "by": name}}
        RecordedExperiment(
            tmp_path / name,
            scheduler=scheduler,
            space=space,
            options=options,
            num_samples=4,
            metric="loss",
            mode="min",
        )
    made = compare([(found(tmp_path / name), None) for name in ("asha", "median")], now=0.0)
    assert made.settings == ("scheduler", "space lr", "tag by")
    assert made.plain()["sides"][0]["settings"]["scheduler"] == "ASHA"
    assert main(["compare", str(tmp_path / "asha"), str(tmp_path / "median")]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["tag", "by", "asha", "median"] in shown
    assert ["space", "lr", "uniform(0.0,", "0.1)", "uniform(0.0,", "1.0)"] in shown
    assert not any(line[:1] == ["num_samples"] for line in shown)


def test_trials_of_one_experiment_are_named_by_what_was_asked(
    two: list[ExperimentView],
) -> None:
    made = compare([(two[0], "0"), (two[0], "1")], now=0.0)
    assert of(made) == [("0", "d2a66_00000", 2.0), ("1", "d2a66_00001", 1.0)]
    mixed = compare([(two[0], "0"), (two[1], None)], now=0.0)
    assert [side.label for side in mixed.sides] == ["slow:0", "fast"]
    with pytest.raises(NoSuchTrial, match="there is no '7'"):
        compare([(two[0], "7")], now=0.0)
    with pytest.raises(InvalidConfig, match="name each experiment or trial once"):
        compare([(two[0], None), (two[0], None)], now=0.0)


def test_experiments_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    for place in ("a", "b"):
        recorded(tmp_path / place / "run", [[1.0]])
    made = compare([(found(tmp_path / place / "run"), None) for place in "ab"], now=0.0)
    assert [side.label for side in made.sides] == [f"{tmp_path}/a/run", f"{tmp_path}/b/run"]


def test_other_goals_have_no_best_and_nothing_reported_has_no_curve(
    two: list[ExperimentView], tmp_path: Path
) -> None:
    recorded(tmp_path / "aimless", [[1.0], [2.0]], metric=None)
    recorded(tmp_path / "empty", [])
    sides = [(found(tmp_path / name), None) for name in ("aimless", "empty")]
    made = compare([(two[0], None), *sides], now=0.0)
    assert (made.metric, made.best) == (None, None)
    assert of(made)[1:] == [("aimless", None, None), ("empty", None, None)]
    assert made.plain()["sides"][2]["curve"] == []
    chosen = compare([(two[0], None), *sides], now=0.0, metric="loss", mode="min")
    assert of(chosen)[1] == ("aimless", "d2a66_00000", 1.0)
    assert chosen.best is not None
    assert chosen.best.label in ("slow", "aimless")


def test_a_colon_begins_a_trial_unless_the_whole_is_an_experiment() -> None:
    known = {"a:b", "s3://bucket/x?endpoint_override=http://127.0.0.1:9000"}

    def parts(text: str) -> tuple[str, str | None]:
        return split_trial(text, known.__contains__)

    assert parts("digits") == ("digits", None)
    assert parts("digits:3") == ("digits", "3")
    assert parts("a:b") == ("a:b", None)
    assert parts("a:b:0") == ("a:b", "0")
    uri = "s3://bucket/x?endpoint_override=http://127.0.0.1:9000"
    assert parts(uri) == (uri, None)
    assert parts(f"{uri}:d2a66_00000") == (uri, "d2a66_00000")
    assert parts("s3://bucket/y") == ("s3://bucket/y", None)
