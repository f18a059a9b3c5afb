"""Trials that are preempted, that hang, and that wait before they are retried."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.runtime import process_control
from tests.rig.epochs import resumed, saved
from tests.rig.nightly import rest_nightly


def is_first() -> bool:
    return tune.get_context().get_attempt() == 1


def asks(config: dict[str, Any]) -> None:
    """Saves only when it is preempted, in the third of five epochs."""
    for epoch in range(resumed() + 1, 6):
        if epoch == 3 and is_first():
            os.kill(os.getpid(), signal.SIGTERM)
        wanted = tune.get_context().preemption_requested()
        row = {"epoch": epoch, "attempt": tune.get_context().get_attempt()}
        tune.report(row, checkpoint=saved(epoch) if wanted else None)
        assert not wanted, "a report with a checkpoint is the last thing that it does"


def saves_anyway(config: dict[str, Any]) -> None:
    for epoch in range(resumed() + 1, 6):
        if epoch == 3 and is_first():
            os.kill(os.getpid(), signal.SIGTERM)
        row = {"epoch": epoch, "attempt": tune.get_context().get_attempt()}
        tune.report(row, checkpoint=saved(epoch))


class Steps(tune.Trainable):
    """Saves only on preemption."""

    def setup(self, config: dict[str, Any]) -> None:
        self.epoch = 0

    def step(self) -> dict[str, Any]:
        self.epoch += 1
        if self.epoch == 3 and is_first():
            os.kill(os.getpid(), signal.SIGTERM)
        attempt = tune.get_context().get_attempt()
        return {"epoch": self.epoch, "attempt": attempt, "done": self.epoch == 5}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.epoch = checkpoint["epoch"]


@pytest.mark.parametrize("trainable", rest_nightly(2, [asks, Steps, saves_anyway]))
def test_a_preempted_trial_saves_and_resumes_where_it_was(fit: Any, trainable: Any) -> None:
    (result,) = fit(trainable)
    assert result.error is None
    rows = result.metrics_dataframe
    assert list(rows["epoch"]) == [1, 2, 3, 4, 5]
    assert list(rows["attempt"]) == [1, 1, 1, 2, 2]
    assert "SIGTERM: this trial has 5 s to report a checkpoint" in stderr_of(result)


def stderr_of(result: tune.Result) -> str:
    return Path(result.path, "stderr").read_text()


class Stateless(tune.Trainable):
    """Cannot be saved; without a grace it is ended in its third step."""

    def step(self) -> dict[str, Any]:
        if self.iteration == 2 and is_first():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        return {"attempt": tune.get_context().get_attempt(), "done": self.iteration == 4}


def never_saves(config: dict[str, Any]) -> None:
    for epoch in range(1, 6):
        if epoch == 3 and is_first():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        tune.report({"attempt": tune.get_context().get_attempt()})


@pytest.mark.parametrize("trainable", [never_saves, Stateless])
@pytest.mark.parametrize("grace_s", rest_nightly(1, [0.1, 0]))
def test_a_trial_that_does_not_save_in_its_grace_begins_again(
    fit: Any, trainable: Any, grace_s: float
) -> None:
    failures = tune.FailureConfig(preemption_grace_s=grace_s)
    (result,) = fit(trainable, failure_config=failures)
    assert result.error is None
    assert list(result.metrics_dataframe["attempt"]) == [2] * 5


def test_a_trial_that_ends_in_its_grace_has_ended(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        tune.report({"attempt": tune.get_context().get_attempt()})

    (result,) = fit(train)
    assert (result.error, result.metrics["attempt"]) == (None, 1)


class LibraryExit(SystemExit):
    """Like Lightning's, which it raises some time after a SIGTERM."""


def test_a_library_that_exits_on_the_notice_has_not_ended_the_trial(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        for epoch in range(resumed() + 1, 4):
            tune.report({"epoch": epoch}, checkpoint=saved(epoch))
            if epoch == 2 and is_first():
                os.kill(os.getpid(), signal.SIGTERM)
                raise LibraryExit

    (result,) = fit(train)
    assert [row["epoch"] for row in result.rows()] == [1, 2, 3]


def test_an_own_handler_is_taken_back_from_a_library_that_has_replaced_it(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        if is_first():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            process_control.restore_own_handler(signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        tune.report({"noticed": tune.get_context().preemption_requested()})

    (result,) = fit(train)
    assert (result.error, result.metrics["noticed"]) == (None, True)


def test_a_process_that_is_being_preempted_hosts_no_other_trial(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["n"] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        tune.report({"attempt": tune.get_context().get_attempt(), "pid_now": os.getpid()})

    first, second = fit(
        train,
        {"n": tune.grid_search([0, 1])},
        tune.TuneConfig(max_concurrent_trials=1, reuse_actors=True),
        failure_config=tune.FailureConfig(preemption_grace_s=3600),
    )
    assert (first.metrics["attempt"], second.metrics["attempt"]) == (1, 1)
    assert first.metrics["pid_now"] != second.metrics["pid_now"]


def test_preemptions_have_a_limit_if_asked(fit: Any) -> None:
    failures = tune.FailureConfig(
        max_failures=5, max_preemptions=1, preemption_grace_s=0, retry_wait_s=0.01
    )

    def train(config: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    (result,) = fit(train, failure_config=failures)
    assert isinstance(result.error, tune.TrialError)
    assert result.error.failure.kind == "preempted"
    assert "SIGTERM" in str(result.error)


def holds_the_interpreter(config: dict[str, Any]) -> None:
    """Hangs like a deadlock in native code: no other Python thread runs, and no handler."""
    ctypes.PyDLL(None).sleep(60)


def sleeps(config: dict[str, Any]) -> None:
    tune.report({"epoch": 1})
    time.sleep(60)


@pytest.mark.parametrize("trainable", [holds_the_interpreter, sleeps])
def test_a_hung_trial_shows_where_it_stands_and_is_retried(fit: Any, trainable: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        if is_first():
            trainable(config)
        tune.report({"attempt": 2})

    # On a busy machine another attempt may take a second, too.
    failures = tune.FailureConfig(max_failures=9, hang_timeout_s=1)
    (result,) = fit(train, failure_config=failures)
    assert result.error is None
    assert result.metrics["attempt"] == 2
    assert f"in {trainable.__name__}" in stderr_of(result)


def test_a_retry_waits_if_asked(fit: Any) -> None:
    began = time.monotonic()

    def train(config: dict[str, Any]) -> None:
        if is_first():
            raise RuntimeError("not yet")
        tune.report({"attempt": tune.get_context().get_attempt()})

    failures = tune.FailureConfig(max_failures=1, retry_wait_s=0.6)
    (result,) = fit(train, failure_config=failures)
    assert result.metrics["attempt"] == 2
    assert time.monotonic() - began > 0.3


def test_a_run_with_too_many_errors_ends_and_tells_why(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["n"] < 2:
            raise RuntimeError("oh no")
        tune.report({"n": config["n"]})

    results = fit(
        train,
        {"n": tune.grid_search(list(range(20)))},
        tune.TuneConfig(max_concurrent_trials=1),
        failure_config=tune.FailureConfig(max_errored_trials=1),
        verbose=1,
    )
    assert (results.num_errors, results.num_terminated) == (2, 0)
    assert "one more than max_errored_trials=1 allows" in capfd.readouterr().err


def test_forked_children_that_are_terminated_at_once_end_alone(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        fork = multiprocessing.get_context("fork")
        codes = set()
        for _ in range(100):
            child = fork.Process(target=time.sleep, args=(60,), daemon=True)
            child.start()
            child.terminate()
            child.join()
            codes.add(child.exitcode)
        # The last one is ended by the exit of this process.
        fork.Process(target=time.sleep, args=(3600,), daemon=True).start()
        tune.report({"attempt": tune.get_context().get_attempt(), "codes": codes})

    (result,) = fit(train)
    assert result.metrics["attempt"] == 1
    assert set(result.metrics["codes"]) == {-signal.SIGTERM}
