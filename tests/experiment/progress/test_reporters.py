"""The reporters that users configure, subclass and pass to a run."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.callbacks.trial_view import Surroundings, TrialView, Views
from holdfast.experiment.progress.reporters import (
    CLIReporter,
    JupyterNotebookReporter,
    ProgressReporter,
    ReporterView,
    ResultLines,
)
from holdfast.experiment.progress.summary import Summary
from holdfast.experiment.progress.views import LogView
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.text.tables import html_table, text_table
from holdfast.trial.errors import Failure, InvalidConfig
from holdfast.trial.trial import Place, Status, Trial, TrialSpec
from holdfast.trial.values import format_tag
from tests.experiment.progress.screens import Clock


def result_lines(verbose: int) -> list[str]:
    """The messages about a trial with three reports in half a second, and one a second later."""
    told: list[str] = []
    clock = Clock()
    registry = Views(
        Surroundings(
            trainable_name="train",
            experiment_path="p",
            local_experiment_path="l",
            config_of=lambda spec: spec.config,
            row_of=lambda trial: {
                **(trial.row or {}),
                "training_iteration": trial.iteration,
                "time_total_s": trial.time_total_s,
            },
            checkpoint_of=lambda spec, record: Checkpoint("/c"),
        )
    )
    spec = TrialSpec(
        trial_id="aaaaa_00000",
        index=0,
        name="train_aaaaa_00000",
        dirname="d",
        config={"lr": 0.5},
        tag="0_lr=0.5",
    )
    lines = ResultLines(verbose, lambda text, level: told.append(f"{level} {text}"), clock=clock)
    for iteration, passed_s in ((1, 0.0), (2, 0.25), (3, 0.25), (4, 1.0)):
        clock.now += passed_s
        row = {"acc": 0.25 * iteration, "note": "x", "net": {"norm": 2}, "pid": 7, "config": {}}
        view = registry.show(
            Trial(spec=spec, row=row, iteration=iteration, time_total_s=80.0 + iteration)
        )
        about: dict[str, Any] = {"iteration": 9, "trials": registry.trials, "trial": view}
        if iteration == 1:
            lines.on_trial_start(**about)
        lines.on_trial_result(**about, result=view.last_result)
    lines.on_trial_complete(**about)
    return told


START = "info train_aaaaa_00000 started lr=0.5"
END = "info train_aaaaa_00000 finished at iteration 4 after 1m 24s acc=1"


def test_verbose_2_tells_of_starts_and_ends_and_of_results_in_brief() -> None:
    assert result_lines(2) == [
        START,
        "info train_aaaaa_00000 iteration 1 after 1m 21s acc=0.25",
        "info train_aaaaa_00000 iteration 4 after 1m 24s acc=1",
        END,
    ]


def test_verbose_3_tells_all_of_each_result() -> None:
    start, *results, end = result_lines(3)
    assert (start, end) == (START, END)
    assert len(results) == 4
    assert results[2].splitlines() == [
        "info train_aaaaa_00000 iteration 3 after 1m 23s",
        *("  acc: 0.75", "  net/norm: 2", "  note: x", "  pid: 7"),
    ]


SURROUNDINGS = Surroundings(
    trainable_name="t",
    experiment_path="bucket/exp",
    local_experiment_path="/results/exp",
    config_of=lambda spec: spec.config,
    row_of=lambda trial: {
        **(trial.row or {}),
        "training_iteration": trial.iteration,
        "time_total_s": trial.time_total_s,
        "pid": 7,
    },
    checkpoint_of=lambda spec, record: Checkpoint(Path("/results") / record.dirname),
)
SUMMARY = Summary(name="exp", path="s3://bucket/exp", counts={Status.RUNNING: 1}, total=1)


def trial(
    index: int, status: Status, /, row: dict[str, Any] | None = None, **config: Any
) -> Trial:
    failed = status is Status.ERROR
    return Trial(
        spec=TrialSpec(
            trial_id=f"aaaaa_{index:05}",
            index=index,
            name=f"t_aaaaa_{index:05}",
            dirname=f"dir_{index}",
            config={"fixed": "same", **config},
            tag=format_tag(index, config),
        ),
        status=status,
        row=row,
        iteration=3 if row else 0,
        time_total_s=1.5,
        failures=int(failed),
        error=Failure(kind="user", type_name="ValueError", message="bad") if failed else None,
    )


def views(*trials: Trial) -> list[TrialView]:
    registry = Views(SURROUNDINGS)
    return [registry.show(each) for each in trials]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """The lines that a CLIReporter with these settings prints of some trials."""

    def lines(*trials: Trial, done: bool = False, **settings: Any) -> list[str]:
        reporter = CLIReporter(**settings)
        reporter.report(views(*trials), done, "4 CPUs")
        return capsys.readouterr().out.splitlines()

    return lines


def test_on_a_cluster_each_trial_has_its_node(report: Callable[..., list[str]]) -> None:
    there = replace(trial(0, Status.RUNNING), place=Place(pid=7, nodes=("gpu-7", "gpu-8")))
    lines = report(there, trial(1, Status.PENDING))
    assert any(line.split()[:4] == ["Trial", "name", "status", "node"] for line in lines)
    assert any(line.split()[:3] == ["t_aaaaa_00000", "RUNNING", "gpu-7"] for line in lines)
    lines = report(trial(1, Status.PENDING))
    assert not any("node" in line for line in lines)


def test_columns_are_those_that_the_user_names(report: Callable[..., list[str]]) -> None:
    lines = report(
        trial(0, Status.RUNNING, {"eval": {"acc": 0.5}, "loss": 1.0}, lr=0.1, width=3),
        metric_columns={"eval/acc": "accuracy"},
        parameter_columns=["fixed"],
    )
    assert lines[4].split() == ["Trial", "name", "status", "fixed", "accuracy"]
    assert lines[6].split() == ["t_aaaaa_00000", "RUNNING", "same", "0.5"]


def test_inferred_metrics_are_limited_and_the_goal_is_among_them(
    report: Callable[..., list[str]],
) -> None:
    row = {"a": 1, "b": 2, "note": "x", "c": 3, "acc": 4}
    lines = report(trial(0, Status.RUNNING, row), metric="acc", mode="max", infer_limit=3)
    assert lines[5].split()[-4:] == ["(s)", "acc", "a", "b"]


def test_columns_can_be_added_later_but_not_twice(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = CLIReporter(metric_columns=["a"], parameter_columns={"lr": "rate"})
    reporter.add_metric_column("b", representation="beta")
    reporter.add_parameter_column("fixed")
    with pytest.raises(ValueError, match="'a'"):
        reporter.add_metric_column("a")
    with pytest.raises(ValueError, match="'lr'"):
        reporter.add_parameter_column("lr")
    reporter.report(views(trial(0, Status.RUNNING, {"a": 1, "b": 2}, lr=0.1)), False)
    header = capsys.readouterr().out.splitlines()[3]
    assert header.split()[3:] == ["rate", "fixed", "a", "beta"]


def test_a_table_in_between_is_bounded_and_the_last_one_is_whole(
    report: Callable[..., list[str]],
) -> None:
    trials = [trial(at, Status.ERROR, {"acc": 1}) for at in range(30)]
    between = report(*trials, max_progress_rows=4, max_error_rows=3)
    assert sum(line.startswith("t_aaaaa") for line in between) == 4 + 3
    assert "Number of errored trials: 30" in between
    last = report(*trials, max_progress_rows=4, max_error_rows=3, done=True)
    assert sum(line.startswith("t_aaaaa") for line in last) == 60


def test_errors_tell_how_often_and_where_to_look(report: Callable[..., list[str]]) -> None:
    lines = report(trial(0, Status.ERROR))
    assert lines[-2].split() == ["t_aaaaa_00000", "1", "/results/exp/dir_0/error.txt"]


def test_intermediate_tables_can_be_turned_off(report: Callable[..., list[str]]) -> None:
    running = trial(0, Status.RUNNING, {"acc": 1})
    assert not any("t_aaaaa" in line for line in report(running, print_intermediate_tables=False))
    last = report(running, print_intermediate_tables=False, done=True)
    assert any("t_aaaaa" in line for line in last)


@pytest.mark.parametrize(("mode", "order"), [("max", [1, 0, 2]), ("min", [0, 1, 2])])
def test_rows_can_be_sorted_by_the_metric_with_nan_last(
    report: Callable[..., list[str]], mode: str, order: list[int]
) -> None:
    trials = [
        trial(0, Status.TERMINATED, {"acc": 0.1}),
        trial(1, Status.RUNNING, {"acc": 0.9}),
        trial(2, Status.RUNNING, {"acc": float("nan")}),
    ]
    lines = report(*trials, metric="acc", mode=mode, sort_by_metric=True)
    names = [line.split()[0] for line in lines if line.startswith("t_aaaaa")]
    assert names == [f"t_aaaaa_{at:05}" for at in order]
    assert lines[4].startswith(f"Best so far: acc={0.9 if mode == 'max' else 0.1} ")


def test_it_reports_every_so_many_seconds_and_at_the_end() -> None:
    clock = Clock()
    reporter = CLIReporter(max_report_frequency=5, clock=clock)
    assert reporter.should_report([])
    clock.now += 4.9
    assert not reporter.should_report([])
    assert reporter.should_report([], done=True)
    clock.now += 5.0
    assert reporter.should_report([])


def test_the_last_report_is_not_a_second_copy_of_the_one_just_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    reporter = CLIReporter(metric_columns=["loss"], clock=clock)
    reporter.setup(total_samples=1)
    going, ended = (
        trial(0, status, {"loss": 0.5}) for status in (Status.RUNNING, Status.TERMINATED)
    )
    reporter.report(views(going), False)
    reporter.report(views(going), False)
    reporter.report(views(ended), False)
    clock.now += 1
    reporter.report(views(ended), True)
    assert capsys.readouterr().out.count("Running for") == 3
    reporter.report(views(ended), True, "a line that is new")
    assert "a line that is new" in capsys.readouterr().out


def test_setup_fills_in_what_the_constructor_was_not_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    reporter = CLIReporter(metric="acc", clock=clock)
    reporter.setup(start_time=940.0, total_samples=7, metric="loss", mode="max")
    reporter.report(views(trial(0, Status.RUNNING, {"acc": 0.5, "loss": 1.0})), False)
    out = capsys.readouterr().out
    assert "Running for 1m 00s" in out
    assert "1/7" in out
    assert "Best so far: acc=0.5" in out


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="'best'"):
        CLIReporter(mode="best")
    with pytest.raises(InvalidConfig, match="'acc'"):
        CLIReporter(metric_columns="acc")


class Notebook:
    """Replaces IPython.display: stores the output."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def HTML(self, text: str) -> str:
        return text

    def display(self, picture: str) -> None:
        self.shown.append(picture)

    def clear_output(self, wait: bool) -> None:
        self.shown.clear()


@pytest.mark.parametrize(("overwrite", "left"), [(True, 1), (False, 2)])
def test_a_notebook_shows_tables_of_html_and_overwrites_if_asked(
    monkeypatch: pytest.MonkeyPatch, overwrite: bool, left: int
) -> None:
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    reporter = JupyterNotebookReporter(overwrite=overwrite, metric_columns=["note"])
    failed = trial(0, Status.ERROR, {"note": "<b>"})
    reporter.report(views(failed), False)
    reporter.report(views(failed), True)
    assert len(notebook.shown) == left
    assert "<td>&lt;b&gt;</td>" in notebook.shown[-1]
    assert "<td>/results/exp/dir_0/error.txt</td>" in notebook.shown[-1]


def test_a_text_table_puts_numbers_to_the_right() -> None:
    table = text_table(["name", "n"], [["a", "1"], ["bcdef", "12.5"], ["x", ""]])
    assert table.splitlines() == [
        *("name      n", "-----  ----", "a         1", "bcdef  12.5", "x"),
    ]


def test_a_table_of_html_escapes_headers_and_cells() -> None:
    table = html_table(["<h>"], [["a & b"]])
    assert "<th>&lt;h&gt;</th>" in table
    assert "<td>a &amp; b</td>" in table


def test_a_users_reporter_is_asked_at_most_once_a_second_and_always_at_the_end() -> None:
    class Mine(ProgressReporter):
        def __init__(self) -> None:
            self.asked = 0
            self.reports: list[tuple[list[str], bool, tuple[str, ...]]] = []

        def should_report(self, trials: list[TrialView], done: bool = False) -> bool:
            self.asked += 1
            return self.asked == 2

        def report(self, trials: list[TrialView], done: bool, *sys_info: str) -> None:
            self.reports.append(([each.status for each in trials], done, sys_info))

    clock, stream, mine = Clock(), io.StringIO(), Mine()
    current = [trial(0, Status.RUNNING)]
    lines = LogView(stream)
    view = ReporterView(mine, Views(SURROUNDINGS), lambda: current, lines, clock=clock)
    view.start()
    for _ in range(4):  # asked at 0 s and at 1 s
        view.update(SUMMARY)
        clock.now += 0.5
    view.log("t pid=1", "hello")
    current[:] = [trial(0, Status.TERMINATED)]
    view.finish(SUMMARY)
    assert mine.asked == 2
    results = ("Results: s3://bucket/exp",)
    assert mine.reports == [(["RUNNING"], False, results), (["TERMINATED"], True, results)]
    assert stream.getvalue().splitlines()[0] == "(t pid=1) hello"
    assert stream.getvalue().splitlines()[1].endswith("Results: s3://bucket/exp")


def test_a_reporter_without_report_says_what_is_missing() -> None:
    class Empty(ProgressReporter):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty must define report\(\)"):
        Empty().report([], False)
