"""Pictures of results, for all outcomes of trials."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from holdfast.cli import main
from holdfast.experiment.progress.scheduler_facts import RungCount
from holdfast.results.drawing import BEST, COLOURS, QUIET, draw_rungs
from holdfast.results.plots import KINDS as COMMAND_KINDS
from holdfast.results.result_grid import ExperimentAnalysis, ResultGrid
from holdfast.trial.errors import InvalidConfig
from tests.rig.runs.deciding import asha, hyperband, population
from tests.rig.runs.recorded import RecordedExperiment

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


def test_a_line_passes_below_the_axis_of_a_parameter_that_its_trial_lacks(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run", metric="loss", mode="min")
    configs: list[dict[str, Any]] = [
        {"kind": "mlp", "width": 8},
        {"kind": "forest", "depth": 3},
        {"kind": "mlp"},
    ]
    for at, config in enumerate(configs):
        trial = run.begin(config)
        if at < 2:
            run.report(trial, {"loss": 2.0 - at})
        run.finish(trial)
    run.ends()
    ax = ResultGrid(ExperimentAnalysis(tmp_path / "run")).plot.parallel_coordinates()
    assert texts(ax).split("\n").count("not set") == 2  # width and depth
    drawn = [line for line in ax.lines if len(line.get_xdata()) == 4]
    assert [list(map(math.isnan, line.get_ydata())) for line in drawn] == [
        [False, False, False, True],  # without loss: dotted up to the last parameter
        [False, False, False, False],
        [False, False, False, False],
    ]
    # The order of the parameters is that of the configs: kind, width, depth.
    assert [line.get_ydata()[1] < 0 for line in drawn] == [True, False, True]
    worst, best = (line.get_color() for line in drawn[1:])
    assert best == BEST != worst
    (strip,) = ax.collections  # the colours along the axis of the loss
    assert tuple(strip.cmap(0)) != tuple(strip.cmap(strip.cmap.N - 1))
    ax.figure.savefig(io.BytesIO(), format="png")


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


def test_of_a_conditional_space_each_algorithm_has_scores_or_says_why_not(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run", metric="loss", mode="min")
    for at in range(40):
        model = {"kind": "a", "width": at} if at % 2 else {"kind": "b", "rate": at % 7}
        trial = run.begin({"model": model})
        run.report(trial, {"loss": at if at % 2 else 20})
        run.finish(trial)
    run.ends()
    results = ResultGrid(ExperimentAnalysis(tmp_path / "run"))
    ranked = results.importances(algorithm="rank")
    assert ranked.scores["model/width"] == pytest.approx(1)
    assert ranked.scores["model/rate"] == 0
    judged = results.importances(algorithm="fanova")
    assert judged.scores == {"model/kind": pytest.approx(1)}
    assert judged.note == (
        "fanova judges parameters that all trials have, without model/rate, model/width: "
        "try 'rank'"
    )


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


def test_rungs_are_drawn_with_each_trial_where_it_was_judged(tmp_path: Path) -> None:
    run = asha(tmp_path / "run")
    run.ends()
    ax = ResultGrid(ExperimentAnalysis(tmp_path / "run")).plot.rungs()
    ax.figure.savefig(io.BytesIO(), format="pdf")
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == ["1\n2 of 4", "2\n2 of 2", "4\n2 reached it"]
    assert set(texts(ax).split("\n")) == {
        "continued",
        "stopped",
        "waits, or ended there",
        "newest cutoff",
    }
    points = {
        kind.get_label(): [float(y) for _, y in kind.get_offsets()] for kind in ax.collections
    }
    assert points["stopped"] == [0.75, 1.0]
    assert points["continued"] == [0.5, 0.25, 0.25, 0.125]
    assert (ax.get_ylabel(), ax.get_title(loc="left")) == ("loss", "ASHA (4 trials)")


def test_brackets_are_told_apart_and_without_values_the_trials_are_counted(tmp_path: Path) -> None:
    hyperband(tmp_path / "run").ends()
    ax = ResultGrid(ExperimentAnalysis(tmp_path / "run")).plot.rungs()
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == [
        "1\n1 of 2\nbracket 0",
        "2\n1 reached it\nbracket 0",
        "2\n1 reached it\nbracket 1",
    ]
    rungs = [
        RungCount(bracket=0, milestone=1, reached=4, promoted=1, stopped=3, waiting=0, cutoff=None)
    ]
    ax = draw_rungs(rungs, [], metric="value", title="MO-ASHA", ax=None)
    assert [bar.get_height() for bar in ax.patches] == [1, 3]
    assert ax.get_ylabel() == "trials"


def test_a_population_shows_who_took_over_whom_and_what_changed(tmp_path: Path) -> None:
    run = population(tmp_path / "run")
    run.ends()
    now = run.trial("d2a66_00001").config["lr"]
    ax = ResultGrid(ExperimentAnalysis(tmp_path / "run")).plot.population()
    ax.figure.savefig(io.BytesIO(), format="pdf")
    assert f"lr 0.75 → {now}" in texts(ax)
    assert "takeovers (1)" in texts(ax)
    (dotted,) = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == [2, 3]  # from the source's second to its own third
    assert list(dotted.get_ydata()) == [0.125, 0.25]
    (clone,) = [line for line in ax.lines if str(line.get_label()).startswith("1: ")]
    assert [math.isnan(y) for y in clone.get_ydata()] == [False, False, True, False, False]


def test_a_picture_of_another_scheduler_is_refused(tmp_path: Path) -> None:
    results = run_of(tmp_path / "run", 2)
    with pytest.raises(InvalidConfig, match=r"has reached a rung .* scheduler is FIFOScheduler"):
        results.plot.rungs()
    with pytest.raises(InvalidConfig, match="taken over another: its scheduler is FIFOScheduler"):
        results.plot.population()


def test_bars_within_chance_are_grey_and_the_note_says_so(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run", metric="loss", mode="min")
    for at in range(12):
        trial = run.begin({"lr": 0.1 * at, "noise": (7 * at) % 12})
        run.report(trial, {"loss": 0.1 * at})
        run.finish(trial)
    run.ends()
    results = ResultGrid(ExperimentAnalysis(tmp_path / "run"))
    found = results.importances(algorithm="rank")
    assert (found.note, found.scores["lr"]) == ("", 1.0)
    assert found.scores["noise"] < found.chance["noise"] < 1
    ax = results.plot.importance(algorithm="rank")
    assert "grey: no more than chance" in ax.get_title(loc="left")
    assert [to_hex(bar.get_facecolor()) for bar in ax.patches] == [
        COLOURS[0].lower(),
        QUIET.lower(),
    ]
    forest = results.importances(algorithm="forest")
    assert forest.chance["lr"] > 0


def test_the_command_draws_every_kind_and_compares_in_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_of(tmp_path / "run", 12)
    run_of(tmp_path / "other", 2)
    for kind in KINDS:
        assert main(["plot", "run", "--kind", kind]) == 0
        assert capsys.readouterr().out == f"run-{kind}.png\n"
        assert (tmp_path / f"run-{kind}.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "both.svg").write_text("an older picture")
    assert main(["compare", "run", "other", "run:2", "-o", "both.svg"]) == 0
    assert "<svg" in (tmp_path / "both.svg").read_text()
    assert pyplot.get_fignums() == []
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert names == {"both.svg", *(f"run-{kind}.png" for kind in KINDS)}
    for kind in COMMAND_KINDS.keys() - set(KINDS):  # of another scheduler or search
        assert main(["plot", "run", "--kind", kind]) == 2
        why = "needs two metrics" if kind == "pareto" else "its scheduler is FIFOScheduler"
        assert why in capsys.readouterr().err


def test_the_front_of_two_metrics_stands_out(tmp_path: Path) -> None:
    run = RecordedExperiment(
        tmp_path / "run", options={"goals": {"accuracy": "max", "time_s": "min"}}
    )
    for accuracy, time_s in ((0.9, 9.0), (0.8, 3.0), (0.7, 5.0)):
        trial = run.begin({"lr": 0.1})
        run.report(trial, {"accuracy": accuracy, "time_s": time_s})
        run.finish(trial)
    run.ends()
    plot = ResultGrid(ExperimentAnalysis(tmp_path / "run")).plot
    ax = plot.pareto()
    assert texts(ax).split("\n") == ["1 other", "Pareto front (2)"]
    assert [list(xs) for xs in ax.lines[0].get_data()] == [[0.8, 0.9], [3.0, 9.0]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("accuracy", "time_s")
    assert "no trial has ended with values of nothing" in texts(plot.pareto("nothing", "time_s"))


def test_the_command_draws_the_front_of_two_named_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path / "run", 12)
    picture = tmp_path / "front.png"
    plot = ["plot", str(tmp_path / "run"), "--kind", "pareto", "-o", str(picture)]
    assert main([*plot, "--metric", "loss,acc"]) == 0
    assert picture.stat().st_size > 1000
    for given in ([], ["--metric", "loss"]):
        assert main([*plot, *given]) == 2
        told = "--kind pareto needs two metrics: --metric time_s,accuracy"
        assert told in capsys.readouterr().err
