"""The debug mode: trials run one after the other where `fit()` was called."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.worker.session import running


@pytest.fixture(autouse=True)
def _debugging() -> None:
    holdfast.init(local_mode=True, num_cpus=2)


def test_trials_run_in_the_calling_thread_one_after_the_other(fit: Any, capsys: Any) -> None:
    lock = threading.Lock()
    threads: list[str] = []

    def train(config: dict[str, Any]) -> None:
        assert lock.acquire(blocking=False), "two trials at once"
        threads.append(threading.current_thread().name)
        print("seen at once")
        tune.report({"pid_here": os.getpid(), "cwd": os.getcwd()})
        lock.release()

    before = os.getcwd()
    # A lock cannot be pickled, but nothing needs to be here.
    results = fit(train, {"n": tune.grid_search([1, 2, 3])})
    assert [result.metrics["pid_here"] for result in results] == [os.getpid()] * 3
    assert threads == [threading.current_thread().name] * 3
    assert [result.metrics["cwd"] for result in results] == [result.path for result in results]
    assert os.getcwd() == before
    assert capsys.readouterr().out == "seen at once\n" * 3
    assert running() is None


def test_errors_retries_and_checkpoints_are_as_in_a_worker(fit: Any) -> None:
    attempts: list[bool] = []

    def train(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        attempts.append(checkpoint is not None)
        if checkpoint is None:
            directory = tune.staging_directory()
            Path(directory, "state").write_text("kept")
            tune.report({"a": 1}, checkpoint=tune.Checkpoint.from_directory(directory))
        raise ValueError("for good")

    results = fit(train, failure_config=tune.FailureConfig(max_failures=1))
    (error,) = results.errors
    assert attempts == [False, True]
    assert error.failure.type_name == "ValueError"
    assert 'raise ValueError("for good")' in error.failure.traceback
    assert Path(results[0].checkpoint.path, "state").read_text() == "kept"


def test_bounds_stop_functions_and_classes(fit: Any) -> None:
    cleaned: list[int] = []

    def count(config: dict[str, Any]) -> None:
        while True:
            tune.report({"a": 1})

    class Count(tune.Trainable):
        def step(self) -> dict[str, Any]:
            return {"a": 1}

        def cleanup(self) -> None:
            cleaned.append(1)

    for trainable in (count, Count):
        result = fit(trainable, stop={"training_iteration": 3})[0]
        assert result.metrics["training_iteration"] == 3
    assert cleaned == [1]


def test_sys_exit_in_a_trial_does_not_end_the_script(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"a": 1})
        sys.exit(4)

    assert fit(train).num_errors == 1


def test_ctrl_c_in_a_trial_is_one_of_the_script_and_leaves_the_trial_to_be_resumed(
    fit: Any, tmp_path: Path
) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"a": 1})
        if not (tmp_path / "again").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(train, name="exp")
    (tmp_path / "again").touch()
    results = tune.Tuner.restore(str(tmp_path / "results" / "exp"), train).fit()
    assert (results.num_errors, results.num_terminated) == (0, 1)


def test_a_run_is_steered_here_too(fit: Any, tmp_path: Path) -> None:
    root = str(tmp_path / "results" / "exp")

    def train(config: dict[str, Any]) -> None:
        number = int(tune.get_context().get_trial_id().rpartition("_")[2])
        tune.report({"n": config["n"]})
        if number == 0:
            assert main(["note", root, "0", "good"]) == 0
            assert main(["stop", root, "0", "--yes"]) == 0
        elif number == 1:
            assert main(["stop", root]) == 0
        while True:
            tune.report({"n": config["n"]})

    with pytest.raises(KeyboardInterrupt):
        fit(train, {"n": tune.grid_search([1, 2])}, name="exp")
    first, second = tune.load(root)
    assert (first.stop_reason, second.stop_reason) == ("user", "interrupted")
    assert not os.path.lexists(f"{root}/control.sock")
