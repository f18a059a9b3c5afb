"""Runs with several goals: the front, the command, and what says so elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.experiment.start.request import Request
from holdfast.results.result_grid import ExperimentAnalysis, ResultGrid
from holdfast.scheduler.policies.asha import MultiObjectiveASHAScheduler
from holdfast.scheduler.searchers.concurrency_limiter import ConcurrencyLimiter
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.trial.config import RunConfig, TuneConfig, checked_options
from holdfast.trial.errors import InvalidConfig
from tests.rig.runs.recorded import RecordedExperiment

GOALS = {"accuracy": "max", "time_s": "min"}
VALUES = [(0.9, 9.0), (0.8, 3.0), (0.7, 5.0), (0.6, 1.0), (0.9, 9.0), (0.99, None), (1.0, 0.5)]
TRIAL = "d2a66_0000{}"


def begun(root: Path, **spec: Any) -> RecordedExperiment:
    policy = MultiObjectiveASHAScheduler(
        list(GOALS), list(GOALS.values()), max_t=9, reduction_factor=2
    )
    options = {"goals": GOALS}
    return RecordedExperiment(root, policy=policy, **{"options": options, **spec})


def ran(root: Path, **spec: Any) -> ResultGrid:
    """The fifth is as good as the first, the sixth lacks a metric, and the seventh fails."""
    run = RecordedExperiment(root, **{"options": {"goals": GOALS}, **spec})
    for at, (accuracy, time_s) in enumerate(VALUES):
        trial = run.begin({"lr": 0.1 * at})
        row = {"accuracy": accuracy, "time_s": time_s}
        run.report(trial, {name: value for name, value in row.items() if value is not None})
        run.finish(trial) if at < 6 else run.fail(trial)
    run.ends()
    return ResultGrid(ExperimentAnalysis(root))


def ids(found: Any) -> list[int]:
    return [round(10 * result.config["lr"]) for result in found]


def test_the_front_has_the_trials_that_no_other_beats_in_all_goals(tmp_path: Path) -> None:
    results = ran(tmp_path / "run")
    assert ids(results.pareto_front()) == [0, 4, 1, 3]
    assert ids(results.pareto_front(with_unfinished=True)) == [6]
    assert ids(results.pareto_front({"accuracy": "min"})) == [3]
    with pytest.raises(InvalidConfig, match="mode must be 'max' or 'min'"):
        results.pareto_front({"accuracy": "most"})
    plain = ran(tmp_path / "plain", options={})
    with pytest.raises(InvalidConfig, match="has no goals: pass them"):
        plain.pareto_front()
    assert ids(plain.pareto_front(GOALS)) == [0, 4, 1, 3]


def test_a_trial_that_a_scheduler_stopped_early_is_on_the_front_only_if_asked(
    tmp_path: Path,
) -> None:
    run = begun(tmp_path / "run", scheduler="MultiObjectiveASHAScheduler")
    first = run.begin({"lr": 0.0})
    run.report(first, {"accuracy": 0.5, "time_s": 2.0})
    run.report(first, {"accuracy": 0.9, "time_s": 4.0})
    run.finish(first)
    second = run.begin({"lr": 0.1})
    run.report(second, {"accuracy": 0.4, "time_s": 2.5})  # worse than the first at this rung
    run.finish(second)
    run.ends()
    results = ResultGrid(ExperimentAnalysis(tmp_path / "run"))
    assert [result.stop_reason for result in results] == ["finished", "pruned"]
    assert ids(results.pareto_front()) == [0]
    assert ids(results.pareto_front(with_unfinished=True)) == [0, 1]


def test_the_best_result_needs_one_of_several_goals(tmp_path: Path) -> None:
    results = ran(tmp_path / "run")
    for ask in (lambda: results.best, results.get_best_result, results.importances):
        with pytest.raises(
            InvalidConfig,
            match=r"several goals, accuracy \(max\), time_s \(min\): use pareto_front\(\)",
        ):
            ask()
    assert ids([results.get_best_result("time_s")]) == [6]  # with the mode of that goal
    assert ids([results.get_best_result("accuracy", scope="all")]) == [6]


def test_the_command_shows_the_goals_and_the_front(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran(tmp_path / "run")
    assert main(["show", "run"]) == 0
    shown = capsys.readouterr().out
    assert "  goals accuracy (max), time_s (min)\n" in shown
    assert "  4 trials on the Pareto front: holdfast best run\n" in shown
    assert main(["best", "run"]) == 0
    head, columns, *lines = capsys.readouterr().out.splitlines()
    assert head == "accuracy (max), time_s (min): 4 trials on the Pareto front"
    assert columns.split() == ["TRIAL", "accuracy", "time_s", "lr"]
    assert [line.split()[0] for line in lines] == [TRIAL.format(n) for n in (0, 4, 1, 3)]
    assert main(["best", "run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["goals"] == GOALS
    assert found["front"][2]["values"] == {"accuracy": 0.8, "time_s": 3.0}
    assert found["front"][2]["config"] == {"lr": 0.1}
    assert main(["best", "run", "--metric", "time_s"]) == 0
    assert json.loads(capsys.readouterr().out) == {"lr": pytest.approx(0.6)}


def test_a_comparison_of_runs_with_several_goals_says_what_to_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_ROOT", str(tmp_path))  # not what another test has listed last
    ran(tmp_path / "one")
    ran(tmp_path / "two")
    assert main(["compare", "one", "two"]) == 0
    shown = capsys.readouterr().out
    assert "accuracy (max), time_s (min)" in shown
    assert "several goals: pass --metric to compare by one" in shown
    assert "differ:" not in shown
    assert "no side has reported" not in shown
    assert main(["compare", "one", "two", "--metric", "time_s"]) == 0
    shown = capsys.readouterr().out
    assert "time_s (min)" in shown
    assert "0.5 (best)" in shown
    ran(tmp_path / "none", options={})
    assert main(["compare", "none", "none:0"]) == 0
    assert "they have no metric: pass --metric and --mode" in capsys.readouterr().out


def test_the_goals_of_a_search_or_a_scheduler_are_recorded() -> None:
    def goals(**tune: Any) -> Any:
        return Request(
            trainable=lambda config: None,
            param_space={},
            tune=TuneConfig(**tune),
            run=RunConfig(),
        ).goals

    class Two(Searcher):
        def suggest(self, trial_id: str) -> dict[str, Any] | None:
            return None

    search = Two(metric=list(GOALS), mode=list(GOALS.values()))
    assert goals(search_alg=search) == GOALS
    assert goals(search_alg=ConcurrencyLimiter(search, 2)) == GOALS
    scheduler = MultiObjectiveASHAScheduler(list(GOALS), list(GOALS.values()))
    assert goals(scheduler=scheduler) == GOALS
    assert goals(metric="a", mode="min") == {}
    assert goals(search_alg=Two(metric=["a"], mode=["min"])) == {}
    odd: Any = [1, 2]
    assert goals(search_alg=Two(metric=odd, mode=["min", "max"])) == {}
    with pytest.raises(ValueError, match="goals must be one of max, min"):
        checked_options({"goals": {"a": "most"}})
