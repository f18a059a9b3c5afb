"""Several runs: one after the other under one name, two at the same time, and unusual
environments."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast import train, tune
from holdfast.cli import main
from holdfast.syncer.files import threads
from holdfast.train import DataParallelTrainer
from holdfast.trial.errors import ExperimentExists, InvalidConfig
from holdfast.tune.search import Searcher


def report_twice(config: dict[str, Any]) -> None:
    tune.report({"n": config["n"]})
    tune.report({"n": config["n"]})


def rows_under(path: str) -> list[tuple[int, int]]:
    """(n, iteration) of all rows of all trials of an experiment, in the order of their folders."""
    found = []
    for file in sorted(Path(path).glob("*/result.json")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        found += [(row["n"], row["training_iteration"]) for row in rows]
    return sorted(found)


# -- one after the other ------------------------------------------------------------------------


def test_the_earlier_run_of_a_name_is_reported_and_can_be_opened(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    path = fit(report_twice, {"n": tune.grid_search([1, 2])}, name="exp").experiment_path
    fit(report_twice, {"n": 3}, name="exp", verbose=1)
    told = f"The earlier run in {path} has finished. Its files are kept (holdfast show --run 1 "
    assert f"{told}{path}); starting run 2\n" in capfd.readouterr().err
    for run, values in ((1, [1, 2]), (2, [3]), (None, [3])):
        results = tune.ResultGrid(tune.ExperimentAnalysis(path, run=run))
        assert [result.metrics["n"] for result in results if result.metrics] == values
        loaded = tune.load(path, run=run)
        assert [result.metrics["n"] for result in loaded if result.metrics] == values
    with pytest.raises(InvalidConfig, match=r"there is no run 3 in .*: it holds runs 1 to 2"):
        tune.ExperimentAnalysis(path, run=3)
    assert main(["show", path]) == 0
    assert f"run 2 of this name; run 1 is kept: holdfast show --run 1 {path}" in (
        shown := capfd.readouterr().out
    )
    assert "1 finished" in shown
    assert main(["show", "--run", "1", path]) == 0
    shown = capfd.readouterr().out
    assert "2 finished" in shown
    assert f"run 1 of this name, not the newest: holdfast show {path}" in shown
    assert main(["best", "--metric", "n", "--mode", "max", "--run", "1", path]) == 0
    assert json.loads(capfd.readouterr().out) == {"n": 2}
    assert main(["ls", path]) == 0
    assert f"exp: run 1 is kept:\n  holdfast show --run 1 {path}" in capfd.readouterr().out
    assert main(["show", "--run", "0", path]) == 2


def test_after_an_error_before_the_first_trial_the_name_is_free(fit: Any) -> None:
    class Mistaken(Searcher):
        def suggest(self, trial_id: str) -> dict[str, Any]:
            raise InvalidConfig("a point is not in the space")

    config = tune.TuneConfig(search_alg=Mistaken())
    with pytest.raises(InvalidConfig, match="a point is not in the space"):
        fit(report_twice, None, config, name="exp")
    assert len(fit(report_twice, {"n": 1}, name="exp")) == 1


def test_several_earlier_runs_are_counted_and_rm_says_that_it_removes_all(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    path = fit(report_twice, {"n": 1}, name="exp").experiment_path
    fit(report_twice, {"n": 2}, name="exp")
    ask = tune.with_resources(report_twice, lambda config: {"cpu": config["n"]})
    config = tune.TuneConfig(max_concurrent_trials=1)
    with pytest.raises(tune.TuneError, match="can never start"):
        fit(ask, {"n": tune.grid_search([1, 10_000])}, config, name="exp")
    capfd.readouterr()
    for command in ("show", "ls"):
        assert main([command, path]) == 0
        out = capfd.readouterr().out
        assert "runs 1 to 2 are kept:" in out
        assert f"holdfast show --run 2 {path}" in out
    with pytest.raises(ExperimentExists) as refused:
        fit(report_twice, {"n": 4}, name="exp")
    assert str(refused.value).endswith(f"holdfast rm {path} (it removes all 3 runs of this name)")
    assert main(["rm", "--yes", path]) == 0
    assert "this removes all 3 runs of this name" in capfd.readouterr().out


def test_a_restore_reads_an_earlier_run_and_resumes_none(fit: Any) -> None:
    path = fit(report_twice, {"n": tune.grid_search([1, 2])}, name="exp").experiment_path
    fit(report_twice, {"n": 3}, name="exp")
    before = rows_under(path)
    tuner = tune.Tuner.restore(path, run=1)
    for results in (tuner.get_results(), tuner.fit()):
        assert [result.metrics["n"] for result in results if result.metrics] == [1, 2]
        assert [result.config for result in results] == [{"n": 1}, {"n": 2}]
    assert tuner.trainable == "report_twice"
    assert repr(tuner) == f"Tuner(report_twice)\n  state: run 1 in {path}, which another followed"
    assert "2 trials: 2 finished" in tuner._repr_html_()
    newest = tune.Tuner.restore(path, report_twice, run=2)
    assert [result.metrics["n"] for result in newest.fit() if result.metrics] == [3]
    assert rows_under(path) == before
    with pytest.raises(
        InvalidConfig, match=r"run 1 in .* was followed by another and cannot be resumed"
    ):
        tune.Tuner.restore(path, run=1, restart_errored=True).fit()
    with pytest.raises(InvalidConfig, match=r"there is no run 3 in .*: it holds runs 1 to 2"):
        tune.Tuner.restore(path, run=3)


def trains(config: dict[str, Any]) -> None:
    train.report({"n": config["n"]})
    if config["n"] < 0:
        raise ValueError("below zero")


def test_an_earlier_training_is_read_by_its_number(tmp_path: Path) -> None:
    def made(n: int) -> DataParallelTrainer:
        return DataParallelTrainer(
            trains,
            train_loop_config={"n": n},
            run_config=train.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
        )

    made(1).fit()
    with pytest.raises(train.TrainingFailedError):
        made(-1).fit()
    made(3).fit()
    path = str(tmp_path / "run")
    for run, n in ((1, 1), (3, 3)):
        metrics = DataParallelTrainer.restore(path, run=run).fit().metrics
        assert metrics is not None
        assert metrics["n"] == n
        assert train.load(path, run=run).metrics == metrics
    assert "below zero" in str(train.load(path, run=2).error)
    with pytest.raises(train.TrainingFailedError, match="below zero"):
        DataParallelTrainer.restore(path, run=2).fit()

    class Other(DataParallelTrainer):
        pass

    with pytest.raises(InvalidConfig, match="holds no training of a Other"):
        Other.restore(path, run=1)


def test_one_tuner_can_be_fitted_twice_and_makes_two_experiments(tmp_path: Path) -> None:
    tuner = tune.Tuner(
        report_twice,
        param_space={"n": 4},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )
    first, second = tuner.fit(), tuner.fit()
    assert first.experiment_path != second.experiment_path
    assert rows_under(second.experiment_path) == [(4, 1), (4, 2)]
    assert tuner.get_results() is second


def test_many_runs_leave_no_open_file_and_no_thread_behind(fit: Any) -> None:
    def left() -> tuple[int, set[threading.Thread]]:
        """Threads that wait for disks and storage are reused, and end some time later."""
        others = {one for one in threading.enumerate() if not one.name.startswith(threads.NAME)}
        return psutil.Process().num_fds(), others

    fit(report_twice, {"n": 1})
    before = left()
    for _ in range(3):
        fit(report_twice, {"n": 1})
    assert left() == before


# -- at the same time ---------------------------------------------------------------------------


# -- odd surroundings ---------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
def test_fit_works_inside_a_running_event_loop(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    if cached:
        # Then results are persisted elsewhere, which takes an event loop of its own.
        monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(tmp_path / "cache"))

    async def cell() -> tune.ResultGrid:
        results: tune.ResultGrid = fit(report_twice, {"n": 6}, name="exp")
        return results

    results = asyncio.run(cell())
    assert rows_under(results.experiment_path) == [(6, 1), (6, 2)]
