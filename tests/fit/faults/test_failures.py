"""Failures inside a trial: retried, reported with their facts, without harm to other trials."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.trial.errors import TuneError
from tests.rig.epochs import resumed, saved


def attempts_so_far(config: dict[str, Any]) -> int:
    """Count this attempt in a file that the next one reads."""
    with open(config["diary"], "a") as diary:
        diary.write("x")
    return len(Path(config["diary"]).read_text())


def fail_at_two(config: dict[str, Any]) -> None:
    """Report three epochs; fail after the second one in each of the first `failures` attempts."""
    attempt = attempts_so_far(config)
    start = resumed()
    for epoch in range(start + 1, 4):
        if epoch == 3 and attempt <= config["failures"]:
            raise RuntimeError(f"stumble {attempt}")
        row = {"epoch": epoch, "attempt": attempt, "start": start}
        tune.report(row, checkpoint=saved(epoch))


# -- retries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_failures", "failures"), [(2, 2), (-1, 4)])
def test_a_failed_trial_is_retried_from_its_newest_checkpoint(
    fit: Any, tmp_path: Path, max_failures: int, failures: int
) -> None:
    result = fit(
        fail_at_two,
        {"diary": str(tmp_path / "diary"), "failures": failures},
        failure_config=tune.FailureConfig(max_failures=max_failures),
    )[0]
    assert result.error is None
    assert (result.metrics["epoch"], result.metrics["start"]) == (3, 2)
    assert result.metrics["attempt"] == failures + 1
    assert (result.metrics["training_iteration"], result.metrics["iterations_since_restore"]) == (
        3,
        1,
    )


def test_a_trial_that_fails_once_more_than_allowed_ends_in_error(fit: Any, tmp_path: Path) -> None:
    results = fit(
        fail_at_two,
        {"diary": str(tmp_path / "diary"), "failures": 9},
        failure_config=tune.FailureConfig(max_failures=1),
    )
    (error,) = results.errors
    assert error.failure.message == "stumble 2"
    text = Path(results[0].path, "error.txt").read_text()
    assert "stumble 1" in text
    assert "stumble 2" in text
    assert results[0].metrics["epoch"] == 2


def test_the_first_failure_ends_a_run_that_fails_fast(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["fails"]:
            raise RuntimeError("first of all")
        tune.report({"a": 1})
        threading.Event().wait()

    results = fit(
        train,
        {"fails": tune.grid_search([False, True, False, False])},
        failure_config=tune.FailureConfig(fail_fast=True),
        verbose=1,
    )
    assert results.num_errors == 1
    assert len(results) < 4
    assert "The run has ended: trial" in (told := capfd.readouterr().err)
    assert "fail_fast is set: RuntimeError: first of all" in told


def test_after_fail_fast_and_a_mend_the_others_resume_where_they_were(
    fit: Any, tmp_path: Path
) -> None:
    mended, fifo = tmp_path / "mended", tmp_path / "saved"
    os.mkfifo(fifo)

    def train(config: dict[str, Any]) -> None:
        if not config["fails"]:
            begins_at = resumed()
            for epoch in range(begins_at, 2):
                if epoch == 1 and not mended.exists():
                    fifo.write_text("saved")
                    threading.Event().wait()
                tune.report({"begins_at": begins_at}, checkpoint=saved(epoch + 1))
        elif not mended.exists():
            fifo.read_text()
            raise RuntimeError("to be mended")

    config = {"fails": tune.grid_search([False, True])}
    results = fit(train, config, failure_config=tune.FailureConfig(fail_fast=True))
    mended.touch()
    tuner = tune.Tuner.restore(results.experiment_path, train, resume_errored=True)
    results = tuner.fit()
    assert (results.num_terminated, results.num_errors) == (2, 0)
    assert results[0].metrics is not None
    assert results[0].metrics["begins_at"] == 1


def test_fail_fast_raise_raises_the_error_of_the_trial(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        raise RuntimeError("first of all")

    with pytest.raises(tune.TrialError, match="first of all") as caught:
        fit(train, failure_config=tune.FailureConfig(fail_fast="raise"))
    assert caught.value.failure.type_name == "RuntimeError"


# -- every way to die ---------------------------------------------------------------------------


class Stubborn(Exception):
    """Neither picklable nor printable."""

    def __init__(self) -> None:
        super().__init__("stubborn")
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def die(config: dict[str, Any]) -> None:
    print("about to die")
    how: str = config["how"]
    match how:
        case "raises":
            raise ValueError("plain")
        case "unpicklable":
            raise Stubborn
        case "surrogate":
            raise OSError("no file \udc80 here")
        case "exit 3":
            sys.exit(3)
        case "exit text":
            sys.exit("gave up")
        case "os._exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "group":
            os.killpg(0, signal.SIGKILL)
        case "exit 0":
            tune.report({"a": 1})
            sys.exit()
        case "nothing":
            return
        case _:
            tune.report({"a": 0})
    tune.report({"a": 1})


WAYS = [
    "raises",
    "unpicklable",
    "surrogate",
    "exit 3",
    "exit text",
    "os._exit",
    "kill",
    "segfault",
    "group",
    "exit 0",
    "nothing",
    "fine",
]


@pytest.fixture(scope="module")
def died(shared_fit: Any) -> tune.ResultGrid:
    results: tune.ResultGrid = shared_fit(die, {"how": tune.grid_search(WAYS)})
    return results


def by_way(results: tune.ResultGrid) -> dict[str, tune.Result]:
    return {str((result.config or {})["how"]): result for result in results}


@pytest.mark.parametrize(
    ("how", "kind", "type_name", "message"),
    [
        ("raises", "user", "ValueError", "plain"),
        ("unpicklable", "user", "Stubborn", "__str__ raised"),
        ("surrogate", "user", "OSError", "no file ? here"),
        ("exit 3", "user", "SystemExit", "3"),
        ("exit text", "user", "SystemExit", "gave up"),
        ("os._exit", "lost", "WorkerLost", "exited with status 3"),
        ("kill", "lost", "WorkerLost", "SIGKILL"),
        ("segfault", "lost", "WorkerLost", "SIGSEGV"),
        ("group", "lost", "WorkerLost", "SIGKILL"),
    ],
)
def test_each_way_to_die_is_reported_with_its_cause(
    died: tune.ResultGrid, how: str, kind: str, type_name: str, message: str
) -> None:
    result = by_way(died)[how]
    error = result.error
    assert isinstance(error, tune.TrialError)
    assert (error.failure.kind, error.failure.type_name) == (kind, type_name)
    assert message in error.failure.message
    assert error.failure.pid
    assert error.trial_id in result.path
    assert error.log == result.path
    assert type_name in Path(result.path, "error.txt").read_text()
    assert "about to die" in Path(result.path, "stdout").read_text()


def test_an_error_of_user_code_shows_its_line_in_result_file_and_stderr(
    died: tune.ResultGrid,
) -> None:
    result = by_way(died)["raises"]
    assert isinstance(result.error, tune.TrialError)
    for text in (
        result.error.failure.traceback,
        Path(result.path, "error.txt").read_text(),
        Path(result.path, "stderr").read_text(),
    ):
        assert 'raise ValueError("plain")' in text
        assert "in die" in text


def test_an_error_inside_of_holdfast_is_reported_with_the_line_that_called_it(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"a": 1}, checkpoint=tune.Checkpoint.from_directory("/nowhere/at/all"))

    (error,) = fit(train, verbose=1).errors
    (told,) = (line for line in capfd.readouterr().err.splitlines() if ", see " in line)
    assert "failed at test_failures.py:" in told
    assert f"in train: {error.failure.headline}" in told
    assert "/nowhere/at/all" in told
    # The log has the full traceback.
    assert "holdfast/syncer/" in error.failure.traceback


def test_a_segfault_leaves_the_stack_of_the_user_in_stderr(died: tune.ResultGrid) -> None:
    assert "in die" in Path(by_way(died)["segfault"].path, "stderr").read_text()


@pytest.mark.parametrize("how", ["exit 0", "nothing", "fine"])
def test_an_exit_without_a_code_and_a_return_without_a_report_are_no_errors(
    died: tune.ResultGrid, how: str
) -> None:
    assert by_way(died)[how].error is None


# -- what cannot reach a worker -----------------------------------------------------------------


def test_a_parameter_that_cannot_be_pickled_is_named_as_it_was_written(fit: Any) -> None:
    def train(config: dict[str, Any], lock: Any = None) -> None: ...

    with pytest.raises(TuneError, match=r"process: with_parameters\(lock=\.\.\.\) is a lock"):
        fit(tune.with_parameters(train, lock=threading.Lock()))


def test_a_config_value_that_a_worker_cannot_load_fails_its_trial(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"a": 1})

    class Treacherous:
        def __reduce__(self) -> Any:
            return (int, ("no number",))

    results = fit(train, {"x": tune.sample_from(lambda: Treacherous())})
    (error,) = results.errors
    assert "no number" in error.failure.message


def test_an_executor_that_is_left_open_ends_with_its_trial(
    fit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process as joblib leaves it; it waits for results when threads are joined."""
    monkeypatch.setenv("HOLDFAST_STOP_GRACE_S", "3600")  # it is not needed

    def pool(config: dict[str, Any]) -> None:
        global _LEFT
        _LEFT = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
        tune.report({"sum": _LEFT.submit(sum, [1, 2]).result()})

    (result,) = fit(pool)
    assert result.metrics["sum"] == 3
    assert result.error is None


_LEFT: Any = None
