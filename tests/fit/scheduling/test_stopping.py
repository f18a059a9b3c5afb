"""Conditions that end trials and experiments before their functions return."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.runtime import process_control
from holdfast.trial.errors import ExperimentExists, InvalidConfig, TuneError
from holdfast.tune.stopper import Stopper
from tests.rig.nightly import rest_nightly


def count_for_ever(config: dict[str, Any]) -> None:
    number = 0
    while True:
        number += 1
        tune.report({"number": number, "deep": {"score": number * 10}})


def wait_for_ever(config: dict[str, Any]) -> None:
    tune.report({"number": 1})
    threading.Event().wait()


@pytest.mark.parametrize(
    ("stop", "last", "reason", "why"),
    [
        ({"training_iteration": 3}, 3, "finished", "it finished at iteration 3: training_iter"),
        ({"number": 100, "deep/score": 40}, 4, "finished", "it finished at iteration 4: deep/sco"),
        (
            lambda trial_id, result: result["number"] >= 2,
            2,
            "stopper",
            "<lambda> stopped it at iteration 2",
        ),
    ],
    ids=["iterations", "a nested metric", "a function"],
)
def test_a_bound_ends_the_trial_at_the_report_that_reaches_it(
    fit: Any, stop: Any, last: int, reason: str, why: str
) -> None:
    result = fit(count_for_ever, stop=stop)[0]
    assert result.stop_reason == reason
    assert result.why.startswith(why)
    assert result.metrics["number"] == last
    assert result.metrics["done"] is True
    assert len(Path(result.path, "result.json").read_text().splitlines()) == last


def test_code_in_finally_runs_when_a_trial_is_stopped_and_except_exception_does_not(
    fit: Any,
) -> None:
    def train(config: dict[str, Any]) -> None:
        try:
            while True:
                try:
                    tune.report({"a": 1})
                except Exception:  # as a user's own loop may do
                    Path("swallowed").touch()
        finally:
            Path("tidied").touch()

    path = Path(fit(train, stop={"training_iteration": 2})[0].path)
    assert (path / "tidied").exists()
    assert not (path / "swallowed").exists()


def test_a_stopper_sees_full_rows_and_ends_each_trial_by_itself(fit: Any, tmp_path: Path) -> None:
    class AtLimit(Stopper):
        def __init__(self) -> None:
            self.seen: list[tuple[str, int, int]] = []

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            assert result["trial_id"] == trial_id
            limit: int = result["config"]["limit"]
            self.seen.append((trial_id, result["training_iteration"], limit))
            return bool(result["number"] >= limit)

    stopper = AtLimit()
    results = fit(count_for_ever, {"limit": tune.grid_search([2, 4])}, stop=stopper)
    assert [result.metrics["number"] for result in results] == [2, 4]
    assert sorted(limit for _, _, limit in stopper.seen) == [2, 2, 4, 4, 4, 4]


def test_stop_all_ends_every_trial_and_starts_no_more(fit: Any) -> None:
    class AfterFive(Stopper):
        reports = 0

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            self.reports += 1
            return False

        def stop_all(self) -> bool:
            return self.reports >= 5

    results = fit(count_for_ever, None, tune.TuneConfig(num_samples=-1), stop=AfterFive())
    assert results.num_terminated == len(results) <= 2
    assert sum(result.metrics.get("training_iteration", 0) for result in results) >= 5


def test_a_stop_function_that_raises_fails_the_trial_with_its_own_frame(fit: Any) -> None:
    def stop(trial_id: str, result: dict[str, Any]) -> bool:
        raise KeyError("lost")

    results = fit(count_for_ever, stop=stop)
    (error,) = results.errors
    assert error.failure.kind == "stopper"
    assert 'raise KeyError("lost")' in error.failure.traceback


def test_the_time_budget_ends_trials_that_never_report_again(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    tuning = tune.TuneConfig(num_samples=-1, time_budget_s=0.5)
    results = fit(wait_for_ever, None, tuning, verbose=1)
    assert results.num_terminated == len(results) >= 1
    assert results.num_errors == 0
    assert "The run has ended: the time budget of 0.5 s is used up" in capfd.readouterr().err


def test_a_budget_that_is_shorter_than_a_training_says_so(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    (result,) = fit(wait_for_ever, None, tune.TuneConfig(budget=0.5), verbose=1)
    assert result.stop_reason == "budget"
    told = "No trial has trained to its end, since the budget is shorter than a training"
    assert told in " ".join(capfd.readouterr().err.split())


def in_a_finalizer(wait: Callable[[], None]) -> None:
    class Loader:
        def __del__(self) -> None:
            wait()

    Loader()


def in_a_callback_of_a_weak_reference(wait: Callable[[], None]) -> None:
    def watched() -> None: ...

    reference = weakref.ref(watched, lambda _: wait())
    del watched
    assert reference() is None


def in_a_hook_of_fork(wait: Callable[[], None]) -> None:
    os.register_at_fork(after_in_parent=wait)
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.parametrize(
    "place", [in_a_finalizer, in_a_callback_of_a_weak_reference, in_a_hook_of_fork]
)
def test_an_order_to_stop_that_python_swallows_is_given_again(
    fit: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[[Callable[[], None]], None],
) -> None:
    fifo, unwound = tmp_path / "fifo", tmp_path / "unwound"
    os.mkfifo(fifo)

    def train(config: dict[str, Any]) -> None:
        is_first = True

        def wait() -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                fifo.write_text("there now")
                threading.Event().wait()

        try:
            place(wait)
            threading.Event().wait()
        finally:
            unwound.touch()

    monkeypatch.setenv("HOLDFAST_STOP_GRACE_S", "20")
    stop_when_read(fit, train, fifo)
    assert unwound.exists()
    assert [log.read_text() for log in tmp_path.glob("results/*/*/stderr")] == [""]


def stop_when_read(fit: Any, train: Callable[[dict[str, Any]], None], fifo: Path) -> None:
    """A run that ends when `train` has written to `fifo`: another trial asks for too much."""

    def ask(config: dict[str, Any]) -> dict[str, float]:
        if config["cpus"] > 1:
            fifo.read_text()
        return {"cpu": config["cpus"]}

    holdfast.init(num_cpus=2)
    with pytest.raises(TuneError, match="can never start"):
        fit(tune.with_resources(train, ask), {"cpus": tune.grid_search([1, 64])})


def test_a_trial_that_has_missed_the_order_to_stop_is_reported_when_it_reports(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo, unwound = tmp_path / "fifo", tmp_path / "unwound"
    os.mkfifo(fifo)

    def deaf(config: dict[str, Any]) -> None:
        signal.signal(process_control.STOP, signal.SIG_IGN)
        fifo.write_text("deaf now")
        try:
            count_for_ever(config)
        finally:
            unwound.touch()

    monkeypatch.setenv("HOLDFAST_STOP_GRACE_S", "20")
    stop_when_read(fit, deaf, fifo)
    assert unwound.exists()


@pytest.mark.parametrize("space", [{}, {"lr": tune.uniform(0, 1)}])
def test_samples_without_end_need_something_that_ends_them(space: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=r"num_samples=-1.*time_budget_s"):
        tune.Tuner(count_for_ever, param_space=space, tune_config=tune.TuneConfig(num_samples=-1))


# -- the metric that was promised ---------------------------------------------------------------


def test_a_nested_metric_is_found_by_its_path(fit: Any) -> None:
    config = tune.TuneConfig(metric="deep/score", mode="max")
    results = fit(count_for_ever, None, config, stop={"number": 2})
    assert results.get_best_result().metrics["deep"] == {"score": 20}


def test_a_trial_that_fails_before_it_reports_does_not_blame_the_metric(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["fails"]:
            raise RuntimeError("too early")
        tune.report({"score": 3})

    results = fit(
        train,
        {"fails": tune.grid_search([True, False])},
        tune.TuneConfig(metric="score", mode="max", max_concurrent_trials=1),
    )
    assert results.num_errors == 1
    assert results.get_best_result().metrics["score"] == 3


def report_with_checkpoints(config: dict[str, Any]) -> None:
    for number in range(1, 4):
        directory = tune.staging_directory()
        Path(directory, "weights").write_text(str(number))
        checkpoint = tune.Checkpoint.from_directory(directory)
        tune.report({"accuracy": number / 10, "loss": 1 / number}, checkpoint=checkpoint)


def test_a_bound_that_the_first_report_lacks_ends_the_run_and_says_what_is_near(fit: Any) -> None:
    with pytest.raises(TuneError, match=r"stop=\{'acurracy'.*Did you mean 'accuracy'") as caught:
        fit(report_with_checkpoints, stop={"training_iteration": 3, "acurracy": 0.9})
    assert "Reported: accuracy, loss." in str(caught.value)


def test_a_bound_that_comes_late_may_be_let_pass(
    fit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: dict[str, Any]) -> None:
        for number in range(10):
            tune.report({"number": number} | ({"late": number} if number > 3 else {}))

    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    assert fit(train, stop={"late": 6})[0].metrics["number"] == 6


def test_a_score_that_no_checkpoint_has_is_reported_once_where_the_run_is_watched(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    results = fit(
        report_with_checkpoints,
        {"n": tune.grid_search([1, 2])},
        checkpoint_config=tune.CheckpointConfig(
            num_to_keep=1, checkpoint_score_attribute="acurracy"
        ),
        verbose=1,
    )
    assert results.num_errors == 0
    told = [line for line in capfd.readouterr().err.splitlines() if "acurracy" in line]
    assert len(told) == 1
    assert "Did you mean 'accuracy'?" in told[0]


# -- out of what cannot continue ------------------------------------------------------------------

WRONG: list[dict[str, Any]] = [{"metric": "acc", "mode": "max"}, {"stop": {"acc": 1}}]


def begin_wrong(fit: Any, wrong: dict[str, Any]) -> str:
    """Returns the messages of `fit`."""
    stop = wrong.get("stop")
    config = tune.TuneConfig(**{key: wrong[key] for key in wrong if key != "stop"})
    with pytest.raises(TuneError, match="'acc'") as caught:
        fit(report_with_checkpoints, None, config, name="exp", stop=stop)
    return str(caught.value)


@pytest.mark.parametrize("wrong", rest_nightly(1, WRONG), ids=["goal", "bound"])
def test_with_the_right_name_the_run_may_begin_again_under_its_own(
    fit: Any, capfd: pytest.CaptureFixture[str], wrong: dict[str, Any]
) -> None:
    assert "call fit() again" in begin_wrong(fit, wrong)
    config = tune.TuneConfig(metric="accuracy", mode="max")
    results = fit(
        report_with_checkpoints, None, config, name="exp", stop={"accuracy": 1}, verbose=1
    )
    assert [result.metrics["accuracy"] for result in results] == [0.3]
    told = [line for line in capfd.readouterr().err.splitlines() if "has no results" in line]
    assert len(told) == 1
    assert results.experiment_path in told[0]
    # The folder of the first is still there, with the checkpoint that it had kept.
    assert len(list(Path(results.experiment_path).glob("*/checkpoint_000000/weights"))) == 2


@pytest.mark.parametrize("wrong", rest_nightly(1, WRONG), ids=["goal", "bound"])
def test_a_restore_of_a_run_with_a_wrong_name_says_how_to_leave_and_that_works(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    begin_wrong(fit, wrong)
    path = str(tmp_path / "results" / "exp")
    with pytest.raises(
        TuneError,
        match=r"TUNE_DISABLE_STRICT_METRIC_CHECKING=1.*Tuner\.restore\(\) or `holdfast resume`",
    ):
        tune.Tuner.restore(path, report_with_checkpoints).fit()
    with monkeypatch.context() as patch:
        patch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
        (result,) = tune.Tuner.restore(path, report_with_checkpoints).fit()
    assert (result.metrics or {})["accuracy"] == 0.3
    assert result.error is None


def test_a_restore_with_a_trainable_that_was_mended_continues(fit: Any, tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def train(config: dict[str, Any]) -> None:
        tune.report({"acc" if mended.exists() else "accuracy": 0.5})

    config = tune.TuneConfig(metric="acc", mode="max")
    with pytest.raises(TuneError, match="'acc'"):
        fit(train, None, config, name="exp")
    mended.touch()
    results = tune.Tuner.restore(str(tmp_path / "results" / "exp"), train).fit()
    assert (results.get_best_result().metrics or {})["acc"] == 0.5


def test_a_run_that_has_reported_is_not_replaced_by_another_of_its_name(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"score": 1})
        if config["fails"]:
            raise RuntimeError("mend me")
        threading.Event().wait()

    space = {"fails": tune.grid_search([False, True])}
    fit(train, space, failure_config=tune.FailureConfig(fail_fast=True), name="exp")
    with pytest.raises(ExperimentExists, match=r"Tuner\.restore"):
        fit(train, space, name="exp")
