"""An experiment in an Optuna storage, and in the dashboard that shows it."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.records.view import ExperimentView
from holdfast.results import optuna_study, optuna_tables
from holdfast.results.optuna_space import RecordedSpace, distributions
from holdfast.results.result_grid import ExperimentAnalysis, ResultGrid
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.description import describe
from holdfast.trial.trial import Status
from tests.rig.runs.recorded import RecordedExperiment

SPACE = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "width": tune.qrandint(16, 64, 16),
    "layers": tune.randint(1, 4),
    "net": {"act": tune.choice(["relu", "tanh"]), "drop": tune.quniform(0, 0.5, 0.1)},
    "kind": tune.grid_search(["a", ("b", 1)]),
    "made": tune.sample_from(lambda: 1),
    "batch": 64,
}
CONFIG = {
    "lr": 0.01,
    "width": 32,
    "layers": 3,
    "net": {"act": "tanh", "drop": 0.30000000000000004},
    "kind": ["b", 1],
    "made": 2.5,
    "batch": 64,
}


def grid(root: Path) -> ResultGrid:
    return ResultGrid(ExperimentAnalysis(root))


def begun(root: Path, **spec: Any) -> RecordedExperiment:
    return RecordedExperiment(root, metric="loss", mode="min", space=describe(SPACE), **spec)


def reported(run: RecordedExperiment, *losses: float, **config: Any) -> str:
    trial = run.begin({**CONFIG, **config})
    for loss in losses:
        run.report(trial, {"loss": loss, "acc": 1 - loss, "deep": {"note": "x"}})
    return trial


def loaded(url: str, name: str = "run") -> optuna.Study:
    return optuna.load_study(study_name=name, storage=url)


def test_a_trial_has_parameters_distributions_values_and_all_else(
    tmp_path: Path, url: str
) -> None:
    run = begun(tmp_path / "run")
    run.finish(reported(run, 0.5, math.nan, 0.25))
    run.ends()
    done = grid(tmp_path / "run").to_optuna(url)
    assert (done.study_name, done.added, done.updated, done.unchanged) == ("run", 1, 0, 0)
    study = loaded(url)
    (trial,) = study.trials
    kinds = optuna.distributions
    assert trial.distributions == {
        "lr": kinds.FloatDistribution(1e-4, 1e-1, log=True),
        "width": kinds.IntDistribution(16, 64, step=16),
        "layers": kinds.IntDistribution(1, 3),
        "net/act": kinds.CategoricalDistribution(("relu", "tanh")),
        "net/drop": kinds.FloatDistribution(0.0, 0.5, step=0.1),
        "kind": kinds.CategoricalDistribution(("a", "('b', 1)")),
        "made": kinds.FloatDistribution(2.5, 2.5),
    }
    assert trial.params["lr"] == 0.01
    assert trial.params["net/act"] == "tanh"
    assert study.user_attrs["holdfast:metric"] == "loss"
    assert study.best_value == 0.25
    assert trial.intermediate_values[1] == 0.5
    assert math.isnan(trial.intermediate_values[2])
    assert trial.user_attrs["config/batch"] == 64
    assert trial.user_attrs["deep/note"] == "x"
    assert trial.user_attrs["holdfast:trial_id"] == "d2a66_00000"
    assert trial.duration is not None
    assert 0 < trial.duration.total_seconds() < 60


def test_states_are_those_of_the_trials_and_no_value_is_a_failure(
    tmp_path: Path, url: str
) -> None:
    run = begun(tmp_path / "run")
    run.finish(reported(run, 0.5))
    run.fail(reported(run, 0.4), message="no")
    run.finish(reported(run, math.nan))
    reported(run, 0.3)
    run.suggest(CONFIG)
    run.ends()
    grid(tmp_path / "run").to_optuna(url)
    trials = loaded(url).trials
    assert [trial.state for trial in trials] == [
        TrialState.COMPLETE,
        TrialState.FAIL,
        TrialState.FAIL,
        TrialState.RUNNING,
        TrialState.RUNNING,
    ]
    assert trials[1].user_attrs["holdfast:error"] == "ValueError: no"


def test_a_trial_that_a_scheduler_stopped_early_is_pruned_and_keeps_its_last_value(
    tmp_path: Path, url: str
) -> None:
    run = begun(
        tmp_path / "run",
        policy=ASHAScheduler(max_t=2, grace_period=1, reduction_factor=2),
        scheduler="ASHAScheduler",
    )
    run.finish(reported(run, 0.1, 0.05))  # to max_t
    run.finish(reported(run, 0.5))  # worse than the first
    run.ends()
    grid(tmp_path / "run").to_optuna(url)
    study = loaded(url)
    full, pruned = study.trials
    assert (full.state, full.value) == (TrialState.COMPLETE, 0.05)
    assert (pruned.state, pruned.value) == (TrialState.PRUNED, 0.5)
    assert pruned.intermediate_values == {1: 0.5}
    assert pruned.user_attrs["holdfast:stop_reason"] == "pruned"
    assert study.best_trial.number == 0


def test_an_export_run_again_adds_what_is_new_and_nothing_twice(tmp_path: Path, url: str) -> None:
    run = begun(tmp_path / "run")
    run.finish(reported(run, 0.5))
    live = reported(run, 0.4)
    run.write_files()
    grid(tmp_path / "run").to_optuna(url)
    again = grid(tmp_path / "run").to_optuna(url)
    assert (again.added, again.updated, again.unchanged) == (0, 0, 2)
    run.report(live, {"loss": 0.2})
    run.finish(live)
    run.finish(reported(run, 0.3, lr=0.5))  # beyond the space: a policy may have changed it
    run.ends()
    third = grid(tmp_path / "run").to_optuna(url)
    assert (third.added, third.updated, third.unchanged) == (1, 1, 1)
    trials = loaded(url).trials
    assert [trial.value for trial in trials] == [0.5, 0.2, 0.3]
    assert trials[1].intermediate_values == {1: 0.4, 2: 0.2}
    assert trials[2].user_attrs["config/lr"] == 0.5


def test_a_failed_trial_that_was_resumed_since_is_added_again_and_says_so(
    tmp_path: Path, url: str
) -> None:
    run = begun(tmp_path / "run", failure=FailureConfig(max_failures=0))
    trial = reported(run, 0.5)
    run.fail(trial)
    run.ends()
    results = grid(tmp_path / "run")
    results.to_optuna(url)
    done = run.machine.trials[trial]
    run.machine.trials[trial] = replace(done, status=Status.TERMINATED, error=None)
    read = ExperimentView(machine=run.machine, location=run.location, layout=run.layout)
    second = ResultGrid(ExperimentAnalysis.of(read)).to_optuna(url)
    assert (second.added, second.updated, second.unchanged) == (1, 0, 0)
    assert loaded(url).trials[1].user_attrs["holdfast:supersedes"] == 0


def recorded_in(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of all tables."""
    connection = sqlite3.connect(database)
    try:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()
            for (name,) in tables.fetchall()
        }
    finally:
        connection.close()


def test_the_tables_have_the_rows_that_optuna_itself_inserts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(tmp_path / "run")
    run.finish(reported(run, 0.5, math.nan, math.inf, 0.25))
    run.fail(reported(run, 0.4), message="no")
    run.finish(reported(run, 0.3, lr=0.5, made="x"))
    run.finish(reported(run))
    reported(run, 0.3)
    run.ends()
    monkeypatch.setattr(optuna_tables, "_BATCH", 20)  # not all trials in one transaction
    grid(tmp_path / "run").to_optuna(f"sqlite:///{tmp_path}/ours.db")
    monkeypatch.setattr(optuna_study, "_SCHEMA", "another")
    grid(tmp_path / "run").to_optuna(f"sqlite:///{tmp_path}/optunas.db")
    ours, optunas = recorded_in(tmp_path / "ours.db"), recorded_in(tmp_path / "optunas.db")
    assert len(ours["trials"]) == 5
    # A trial without reports has the time of its export.
    untimed = [(*row[:4], *(None, None)) if row[1] == 3 else row for row in ours.pop("trials")]
    others = [(*row[:4], *(None, None)) if row[1] == 3 else row for row in optunas.pop("trials")]
    assert untimed == others
    assert ours == optunas


def test_a_trial_that_the_database_refuses_keeps_none_of_the_others_out(
    tmp_path: Path, url: str
) -> None:
    run = begun(tmp_path / "run")
    for batch in (1, 2, 3):
        run.finish(reported(run, 0.5, batch=batch))
    run.ends()
    optuna.storages.RDBStorage(url)
    with sqlite3.connect(tmp_path / "trials.db") as connection:
        connection.execute(
            "CREATE TRIGGER refusing BEFORE INSERT ON trial_user_attributes"
            " WHEN NEW.key = 'config/batch' AND NEW.value_json = '3'"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    with pytest.raises(sqlalchemy.exc.IntegrityError, match="not this one"):
        grid(tmp_path / "run").to_optuna(url)
    assert [trial.number for trial in loaded(url).trials] == [0, 1]
    connection.execute("DROP TRIGGER refusing")
    connection.close()
    again = grid(tmp_path / "run").to_optuna(url)
    assert (again.added, again.unchanged) == (1, 2)
    assert [trial.user_attrs["config/batch"] for trial in loaded(url).trials] == [1, 2, 3]


def test_what_does_not_fit_the_study_or_cannot_be_opened_is_refused(
    tmp_path: Path, url: str
) -> None:
    for name, number in (("run", "d2a66"), ("other", "11111")):
        run = begun(tmp_path / name, run=number)
        run.finish(reported(run, 0.5))
        run.ends()
    grid(tmp_path / "run").to_optuna(url)
    with pytest.raises(InvalidConfig, match="has trials of another experiment"):
        grid(tmp_path / "other").to_optuna(url, study_name="run")
    with pytest.raises(InvalidConfig, match="give another study_name"):
        grid(tmp_path / "run").to_optuna(url, mode="max")
    with pytest.raises(InvalidConfig, match="has the values of 'loss', not of 'acc'"):
        grid(tmp_path / "run").to_optuna(url, metric="acc")
    with pytest.raises(
        InvalidConfig, match=r"no trial has reported .los.\. Reported metrics: acc"
    ):
        grid(tmp_path / "run").to_optuna(url, study_name="new", metric="los")
    assert len(loaded(url).trials) == 1
    assert loaded(url).metric_names == ["loss"]
    for wrong in ("foo", f"sqlite:///{tmp_path}/nowhere/trials.db"):
        with pytest.raises(InvalidConfig, match=f"{wrong} cannot be opened: .*sqlite:///"):
            grid(tmp_path / "run").to_optuna(wrong)


DOMAINS = {
    "lr": tune.loguniform(1e-4, 0.1),
    "drop": tune.quniform(0.05, 0.5, 0.1),
    "layers": tune.lograndint(1, 9),
    "odd": tune.choice([1, "x", (2, 3)]),
    "noise": tune.randn(0, 1),
    "grid": tune.grid_search([True, None]),
    "inner": tune.choice([{"a": 1}, {"b": "t"}]),
}


def test_domains_are_read_back_from_the_records_without_the_users_code() -> None:
    spec = ExperimentSpec(
        experiment_id="e", run="r", trainable="t", seed=0, space=tuple(describe(DOMAINS))
    )
    configs: list[dict[str, Any]] = [
        {"lr": 0.01, "drop": 0.3, "layers": 8, "odd": "x", "noise": -1.5, "grid": None},
        {"lr": 0.02, "drop": 0.1, "layers": 1, "odd": 1, "noise": 2.0, "grid": True},
    ]
    names = [*configs[0], "inner/b"]
    declared = RecordedSpace(spec, []).declared
    found = distributions(declared, names, [*configs, {"inner/b": "t"}])
    kinds = optuna.distributions
    assert found.unknown == ("noise", "inner/b")
    assert found.known == {
        "lr": kinds.FloatDistribution(1e-4, 0.1, log=True),
        "drop": kinds.FloatDistribution(0.1, 0.5, step=0.1),
        "layers": kinds.IntDistribution(1, 8, log=True),
        "odd": kinds.CategoricalDistribution((1, "x", "(2, 3)")),
        "noise": kinds.FloatDistribution(-1.5, 2.0),
        "grid": kinds.CategoricalDistribution((True, None)),
    }


MODELS = {
    "model": tune.choice(
        [
            {"kind": "ridge", "alpha": tune.loguniform(1e-6, 1e-1)},
            {"kind": "mlp", "width": tune.qrandint(8, 64, 8), "alpha": tune.loguniform(1e-3, 1)},
            {"kind": "net", "opt": tune.choice([{"lr": tune.uniform(0, 1)}, "lbfgs"])},
        ]
    ),
    "head": tune.choice([tune.uniform(0, 1), "none"]),
    "seed": 7,
}


def test_a_choice_among_dicts_is_a_parameter_and_so_are_those_inside(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = RecordedExperiment(
        tmp_path / "run", metric="loss", mode="min", space=describe(MODELS), run="d2a66"
    )
    for config in (
        {"model": {"kind": "ridge", "alpha": 2e-6}, "head": 0.5},
        {"model": {"kind": "mlp", "width": 16, "alpha": 0.5}, "head": "none"},
        {"model": {"kind": "net", "opt": {"lr": 0.25}}, "head": "none"},
        {"model": {"kind": "net", "opt": "lbfgs"}, "head": "none"},
        {"model": {"kind": "svm", "alpha": 0.01}, "head": "none"},  # of a hook, not of the space
    ):
        trial = run.begin({**config, "seed": 7})
        run.report(trial, {"loss": 1.0})
        run.finish(trial)
    run.ends()
    done = grid(tmp_path / "run").to_optuna(url)
    ridge, mlp, net, lbfgs, svm = loaded(url).trials
    kinds = optuna.distributions
    alpha = kinds.FloatDistribution(1e-6, 1, log=True)
    assert ridge.distributions == {
        "model": kinds.CategoricalDistribution(("ridge", "mlp", "net")),
        "model/alpha": alpha,
        "head": kinds.CategoricalDistribution((0, 1)),
        "head:0": kinds.FloatDistribution(0, 1),
    }
    assert ridge.params == {"model": "ridge", "model/alpha": 2e-6, "head": 0, "head:0": 0.5}
    assert mlp.params == {"model": "mlp", "model/width": 16, "model/alpha": 0.5, "head": 1}
    assert mlp.distributions["model/width"] == kinds.IntDistribution(8, 64, step=8)
    assert net.params == {"model": "net", "model/opt": 0, "model/opt/lr": 0.25, "head": 1}
    assert lbfgs.params == {"model": "net", "model/opt": 1, "head": 1}
    assert svm.params == {"model/alpha": 0.01, "head": 1}
    assert svm.user_attrs["config/model/kind"] == "svm"
    assert (done.without_distribution, caplog.text) == ((), "")


@pytest.mark.process
def test_the_space_of_the_search_itself_is_exported_with_its_distributions(
    tmp_path: Path, url: str
) -> None:
    search = tune.search.OptunaSearch({"lr": tune.loguniform(1e-4, 1), "n": {"w": 3}}, seed=1)
    results = tune.Tuner(
        lambda config: {"loss": config["lr"]},
        param_space={"batch": 64},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=tune.search.ConcurrencyLimiter(search, 1),
            num_samples=2,
        ),
        run_config=tune.RunConfig(name="own", storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert results.to_optuna(url).without_distribution == ()
    (trial, _) = loaded(url, "own").trials
    assert trial.distributions == {"lr": optuna.distributions.FloatDistribution(1e-4, 1, log=True)}


def conditional(trial: Any) -> dict[str, Any]:
    if trial.suggest_categorical("kind", ["mlp", "forest"]) == "mlp":
        trial.suggest_int("net/width", 4, 64, log=True)
    else:
        trial.suggest_int("depth", 2, 12, step=2)
    trial.suggest_float("x", 0, 1 + trial.number)
    return {"epochs": 3, "made": f"model {trial.number}"}


@pytest.mark.process
def test_what_a_function_has_asked_for_is_exported_with_its_distributions(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def run(count: int) -> ResultGrid:
        return tune.Tuner(
            lambda config: {"loss": config["x"]},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                search_alg=tune.search.ConcurrencyLimiter(
                    tune.search.OptunaSearch(conditional, seed=1), 1
                ),
                num_samples=count,
            ),
            run_config=tune.RunConfig(name="asked", storage_path=str(tmp_path), verbose=0),
        ).fit(resume="auto", extend=True)

    run(3)
    run(6)
    done = tune.load(tmp_path / "asked").to_optuna(url)
    assert done.without_distribution == ("made",)
    assert caplog.messages[-1].startswith("1 parameter was not exported as a parameter: made. ")
    trials = loaded(url, "asked").trials
    assert {trial.params["kind"] for trial in trials} == {"mlp", "forest"}
    expected = {
        "kind": optuna.distributions.CategoricalDistribution(("mlp", "forest")),
        "net/width": optuna.distributions.IntDistribution(4, 64, log=True),
        "depth": optuna.distributions.IntDistribution(2, 12, step=2),
        "x": optuna.distributions.FloatDistribution(0, 6),
    }
    for trial in trials:
        absent = "depth" if trial.params["kind"] == "mlp" else "net/width"
        assert trial.distributions == {n: one for n, one in expected.items() if n != absent}
    specs = [trial.spec.asked for trial in tune.load(tmp_path / "asked")._outcome.trials.values()]
    assert sum("kind" in asked for asked in specs) == 1


def test_several_goals_are_several_directions_with_values(tmp_path: Path, url: str) -> None:
    goals = {"acc": "max", "loss": "min"}
    run = RecordedExperiment(tmp_path / "run", space=describe(SPACE), options={"goals": goals})
    for losses in ((0.5, 0.25), (0.75,), (math.nan,)):
        run.finish(reported(run, *losses))
    run.ends()
    results = grid(tmp_path / "run")
    results.to_optuna(url)
    study = loaded(url)
    assert [one.name for one in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert study.metric_names == ["acc", "loss"]
    first, second, third = study.trials
    assert (first.values, second.values) == ([0.75, 0.25], [0.25, 0.75])
    assert third.state == TrialState.FAIL
    assert [trial.number for trial in study.best_trials] == [0]
    assert results.to_optuna(url).unchanged == 3
    with pytest.raises(InvalidConfig, match="is to maximize, minimize and mode says minimize"):
        results.to_optuna(url, metric="loss")
    results.to_optuna(url, "of-one", metric="loss")
    assert loaded(url, "of-one").best_value == 0.25


@pytest.mark.process
def test_a_run_for_two_metrics_has_its_front_here_and_in_the_study_of_its_search(
    tmp_path: Path, url: str
) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(1, 4):
            tune.report({"score": step * config["x"], "cost": step * (1 + (config["x"] > 0.5))})

    search = tune.search.OptunaSearch(
        metric=["score", "cost"], mode=["max", "min"], seed=1, storage=url, study_name="live"
    )
    scheduler = tune.schedulers.MultiObjectiveASHAScheduler(
        ["score", "cost"], ["max", "min"], max_t=3, reduction_factor=2
    )
    results = tune.Tuner(
        train,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            search_alg=search, scheduler=scheduler, num_samples=8, max_concurrent_trials=1
        ),
        run_config=tune.RunConfig(name="live", storage_path=str(tmp_path), verbose=0),
    ).fit()
    reasons = [result.stop_reason for result in results]
    assert set(reasons) == {"finished", "pruned"}
    front = results.pareto_front()
    assert front
    states = [trial.state for trial in loaded(url, "live").trials]
    ends = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
    assert states == [ends[reason] for reason in reasons]
    assert len(loaded(url, "live").best_trials) == len(front)
    with pytest.raises(InvalidConfig, match="has the trials of this experiment from its search"):
        results.to_optuna(url)
    results.to_optuna(url, "copy")
    copy = loaded(url, "copy")
    assert [trial.state for trial in copy.trials] == states
    assert {trial.params["x"] for trial in copy.best_trials} == {
        (result.config or {})["x"] for result in front
    }


@contextmanager
def dashboard(url: str) -> Iterator[str]:
    """A real optuna-dashboard on loopback; its address."""
    program = (
        "import sys; from wsgiref.simple_server import make_server\n"
        "from optuna.storages import get_storage; from optuna_dashboard import wsgi\n"
        "server = make_server('127.0.0.1', 0, wsgi(get_storage(sys.argv[1])))\n"
        "print(server.server_port, flush=True); server.serve_forever()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    too_late = threading.Timer(240, process.kill)
    too_late.start()
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        too_late.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def answer(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=30) as response:
        return json.load(response)


@pytest.mark.smoke
@pytest.mark.process
@pytest.mark.server
def test_the_dashboard_shows_the_trials_of_a_real_run(tmp_path: Path, url: str) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(1, 4):
            tune.report({"loss": config["lr"] / step})

    results = tune.Tuner(
        train,
        param_space={"lr": tune.uniform(0.1, 1), "kind": tune.grid_search(["a", "b"])},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=2),
        run_config=tune.RunConfig(name="digits", storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert main(["export", str(tmp_path / "digits"), "--optuna", url]) == 0
    assert results.to_optuna(url).unchanged == 4
    with dashboard(url) as address:
        (summary,) = answer(f"{address}/api/studies")["study_summaries"]
        assert summary["study_name"] == "digits"
        shown = answer(f"{address}/api/studies/{summary['study_id']}?after=0")
    assert [trial["state"] for trial in shown["trials"]] == ["Complete"] * 4
    best = min(trial["values"][0] for trial in shown["trials"])
    assert best == pytest.approx(min(results.to_arrow()["loss"].to_pylist()))
    (first, *_) = shown["trials"]
    assert {param["name"] for param in first["params"]} == {"lr", "kind"}
    assert len(first["intermediate_values"]) == 3
    assert results.plot.learning_curves().get_ylabel() == "loss"
