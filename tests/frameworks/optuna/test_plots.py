"""Pictures of results, for all outcomes of trials."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

from holdfast.experiment.results.analysis import ExperimentAnalysis
from holdfast.experiment.results.result_grid import ResultGrid
from holdfast.trial.errors import InvalidConfig
from tests.rig.recorded import RecordedExperiment

KINDS = ("learning_curves", "parallel_coordinates", "importance")


def run_of(root: Path, count: int, **spec: Any) -> ResultGrid:
    """Trials of numbers, words, and a dict; some fail, one has no number, one has nothing."""
    run = RecordedExperiment(root, **{"metric": "loss", "mode": "min", **spec})
    for at in range(count):
        config = {"lr": 10.0 ** -(at % 4), "kind": "ab"[at % 2], "net": {"width": 16 << at % 3}}
        if at % 3:
            config["extra"] = at
        trial = run.begin(config)
        for step in range(3):
            loss = math.nan if at == 2 else (1 + at % 4) / (step + 1)
            run.report(trial, {"loss": loss, "acc": step, "word": "x"})
        run.fail(trial) if at == 3 else run.finish(trial)
    if count > 1:
        run.fail(run.begin({"lr": 0.1, "kind": "a", "net": {"width": 16}}))
    run.ends()
    return ResultGrid(ExperimentAnalysis(root))


def texts(ax: Axes) -> str:
    legend = ax.get_legend()
    inside = [] if legend is None else [text.get_text() for text in legend.get_texts()]
    return "\n".join([*inside, *(text.get_text() for text in ax.texts)])


@pytest.mark.parametrize("count", [0, 1, 2, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_each_picture_is_drawn_of_no_trial_of_one_and_of_many(
    tmp_path: Path, kind: str, count: int
) -> None:
    ax = getattr(run_of(tmp_path / "run", count).plot, kind)()
    ax.figure.savefig(io.BytesIO(), format="pdf")
    if not count:
        assert "no trial" in texts(ax) or "there are 0 such trials" in texts(ax)


def test_the_best_stands_out_and_failures_are_marked(tmp_path: Path) -> None:
    ax = run_of(tmp_path / "run", 12).plot.learning_curves()
    assert "0: lr=1, kind=a, width=16 (best)" in texts(ax)
    assert "failed (1)" in texts(ax)
    assert "11 trials" in texts(ax)  # one has reported nothing but NaN
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("training_iteration", "loss")


def test_parallel_coordinates_have_an_axis_for_each_parameter_and_the_metric(
    tmp_path: Path,
) -> None:
    ax = run_of(tmp_path / "run", 12).plot.parallel_coordinates()
    told = texts(ax).split("\n")
    assert {"best", "without loss (2)", "kind", "width", "extra", "loss", "0.001"} <= set(told)
    only = run_of(tmp_path / "two", 12).plot.parallel_coordinates(
        "acc", "max", params=["net/width"]
    )
    assert {"16", "32", "64", "width", "acc"} <= set(texts(only).split("\n"))


def test_importance_says_which_algorithm_and_finds_what_matters(tmp_path: Path) -> None:
    results = run_of(tmp_path / "run", 48)
    for algorithm in ("rank", "forest"):
        found = results.importances(algorithm=algorithm)
        assert (found.algorithm, found.trials) == (algorithm, 47)
        assert found.scores["lr"] > 10 * found.scores["net/width"]
    ax = results.plot.importance(algorithm="rank")
    assert ax.get_xlabel() == "share of the variance of the metric's ranks"
    assert results.plot.importance().get_xlabel() == "loss of R² when permuted (random forest)"
    with pytest.raises(InvalidConfig, match="algorithm must be one of"):
        results.importances(algorithm="magic")


def test_one_result_draws_its_metrics(tmp_path: Path) -> None:
    results = run_of(tmp_path / "run", 4)
    ax = results[3].plot.learning_curves()
    assert texts(ax).split("\n") == ["acc", "loss", "failed"]
    assert results[0].plot.learning_curves("loss").get_ylabel() == "loss"
    assert "no trial has reported" in texts(results[4].plot.learning_curves())


def test_a_given_axes_is_drawn_on(tmp_path: Path) -> None:
    figure, (left, right) = pyplot.subplots(1, 2)
    results = run_of(tmp_path / "run", 3)
    assert results.plot.learning_curves(ax=left) is left
    assert results.plot.importance("acc", ax=right) is right
    assert pyplot.get_fignums() == [figure.number]


def test_a_metric_is_needed(tmp_path: Path) -> None:
    results = run_of(tmp_path / "run", 2, metric=None, mode=None)
    with pytest.raises(InvalidConfig, match="no metric is given"):
        results.plot.learning_curves()
    assert results.plot.learning_curves("acc").get_ylabel() == "acc"
