"""Users' callbacks, loggers and progress reporters in real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import train as holdfast_train
from holdfast import tune
from holdfast.trial.errors import InvalidConfig, TuneError


def train(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    directory = tune.staging_directory()
    Path(directory, "x").touch()
    tune.report({"score": 1}, checkpoint=tune.Checkpoint.from_directory(directory))
    if config.get("fails") and (checkpoint is None or config["fails"] == "always"):
        raise RuntimeError("a stumble")
    tune.report({"score": 2})


class Recorder(tune.Callback):
    """Records every hook that is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def setup(self, *_: Any, **info: Any) -> None:
        self.calls.append(("setup", info["num_samples"]))

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.calls.append(("start", trial.config.get("fails")))

    def on_trial_restore(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.calls.append(("restore",))

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any
    ) -> None:
        self.calls.append(("result", result["training_iteration"], result["score"]))

    def on_trial_save(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.calls.append(("save",))

    def on_checkpoint(
        self, iteration: int, trials: Any, trial: Any, checkpoint: Any, **_: Any
    ) -> None:
        self.calls.append(("checkpoint", Path(checkpoint.path).name))

    def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.calls.append(("recover",))

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.calls.append(("complete", trial.status))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        self.calls.append(("error", trial.status))

    def on_experiment_end(self, trials: Any, **_: Any) -> None:
        self.calls.append(("end", len(trials)))


def test_every_hook_is_called_in_the_order_of_what_happened(fit: Any) -> None:
    recorder = Recorder()
    fit(
        train,
        {"fails": tune.grid_search(["once", "always"])},
        tune.TuneConfig(max_concurrent_trials=1),
        callbacks=[recorder],
        failure_config=tune.FailureConfig(max_failures=1),
    )
    first_attempt = [("result", 1, 1), ("save",), ("checkpoint", "checkpoint_000000")]
    second_attempt = [("result", 2, 1), ("save",), ("checkpoint", "checkpoint_000001")]
    assert recorder.calls == [
        ("setup", 1),
        *[("start", "once"), *first_attempt, ("recover",)],
        *[("start", "once"), ("restore",), *second_attempt],
        *[("result", 3, 2), ("complete", "TERMINATED")],
        *[("start", "always"), *first_attempt, ("recover",)],
        *[("start", "always"), ("restore",), *second_attempt, ("error", "ERROR")],
        ("end", 2),
    ]


def test_a_waiting_trial_that_the_stopper_ends_completes(fit: Any) -> None:
    class Enough(tune.Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            self.over = result["training_iteration"] == 2 and trial_id.endswith("1")
            return False

        def stop_all(self) -> bool:
            return self.over

    recorder = Recorder()
    fit(
        train,
        {"fails": tune.grid_search(["once", None])},
        tune.TuneConfig(max_concurrent_trials=1),
        callbacks=[recorder],
        failure_config=tune.FailureConfig(max_failures=1),
        stop=Enough(),
    )
    # The first has failed, and waits after the second for another attempt.
    assert [call for call in recorder.calls if call[0] in ("recover", "complete")] == [
        ("recover",),
        ("complete", "TERMINATED"),
        ("complete", "TERMINATED"),
    ]


class Counting(tune.Callback):
    """Counts results over all restores, and writes their number to a file."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.results = 0

    def get_state(self) -> dict[str, Any]:
        return {"results": self.results}

    def set_state(self, state: dict[str, Any]) -> None:
        self.results = state["results"]

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any
    ) -> None:
        self.results += 1

    def on_experiment_end(self, trials: Any, **_: Any) -> None:
        self.place.write_text(str(self.results))


def test_the_state_of_a_callback_is_given_back_on_a_restore(fit: Any, tmp_path: Path) -> None:
    total = tmp_path / "total"
    results = fit(train, {"fails": "always"}, callbacks=[Counting(total)])
    assert total.read_text() == "1"
    tune.Tuner.restore(results.experiment_path, train, resume_errored=True).fit()
    assert total.read_text() == "2"


def test_a_restore_tells_which_callbacks_it_resumes_without(
    fit: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Writing(tune.Callback):
        def __init__(self) -> None:
            self.file = (tmp_path / "log").open("w")

    callback = Writing()
    results = fit(train, {"fails": "always"}, callbacks=[callback], verbose=1)
    callback.file.close()
    tune.Tuner.restore(results.experiment_path, train, resume_errored=True).fit()
    assert (
        "callback Writing is not in tuner.pkl: the experiment resumes without it"
        in capfd.readouterr().err
    )


def test_a_logger_callback_follows_each_trial(fit: Any) -> None:
    class Logger(tune.LoggerCallback):
        def __init__(self) -> None:
            self.lines: list[tuple[Any, ...]] = []

        def log_trial_start(self, trial: Any) -> None:
            self.lines.append(("start", trial.trainable_name))

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            self.lines.append((iteration, result["score"], result["config"]["n"]))

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            self.lines.append(("end", failed))

    logger = Logger()
    fit(train, {"n": 5}, callbacks=[logger])
    assert logger.lines == [("start", "train"), (1, 1, 5), (2, 2, 5), ("end", False)]


def test_a_callback_that_raises_is_reported_and_ends_nothing(fit: Any, capfd: Any) -> None:
    class Broken(tune.Callback):
        def on_trial_result(self, *_: Any, **__: Any) -> None:
            raise ValueError("out of ink")

    results = fit(train, callbacks=[Broken()], verbose=1)
    assert results[0].metrics["score"] == 2
    shown = capfd.readouterr().err
    assert "error: callback Broken.on_trial_result: ValueError: out of ink" in shown
    assert 'raise ValueError("out of ink")' in shown


def test_a_silent_run_tells_in_one_line_which_callback_raised(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    class Broken(tune.Callback):
        def on_trial_result(self, *_: Any, **__: Any) -> None:
            raise ValueError("out of\nink")

    fit(train, callbacks=[Broken()], verbose=0)
    assert capfd.readouterr().err == (
        "callback Broken.on_trial_result: ValueError: out of ink; the run continues\n"
    )


def test_a_setup_that_raises_fails_fit_before_the_first_trial(fit: Any, tmp_path: Path) -> None:
    class Broken(tune.Callback):
        def setup(self, *_: Any, **__: Any) -> None:
            raise ValueError("no account")

    with pytest.raises(TuneError, match=r"Broken\.setup: ValueError: no account"):
        fit(train, callbacks=[Broken()], name="exp")
    assert not list(tmp_path.glob("results/exp/train_*"))


@pytest.mark.parametrize("callback", [object(), tune.Callback, "csv"])
def test_what_is_not_a_callback_is_refused(fit: Any, callback: Any) -> None:
    with pytest.raises(InvalidConfig, match="callback"):
        fit(train, callbacks=[callback])


# -- progress -----------------------------------------------------------------------------------


def test_a_progress_reporter_of_the_users_is_shown_the_trials_until_they_are_done(
    fit: Any,
) -> None:
    class Reporter(tune.ProgressReporter):
        def __init__(self) -> None:
            self.seen: list[tuple[bool, list[str]]] = []
            self.goal: tuple[Any, ...] = ()

        def setup(self, *_: Any, **facts: Any) -> None:
            self.goal = (facts["metric"], facts["mode"], facts["total_samples"])

        def should_report(self, trials: Any, done: bool = False) -> bool:
            return True

        def report(self, trials: Any, done: bool, *sys_info: str) -> None:
            self.seen.append((done, [trial.status for trial in trials]))

    reporter = Reporter()
    config = tune.TuneConfig(metric="score", mode="max", num_samples=2)
    fit(train, None, config, progress_reporter=reporter)
    assert reporter.goal == ("score", "max", 2)
    assert reporter.seen[-1] == (True, ["TERMINATED", "TERMINATED"])
    assert not any(done for done, _ in reporter.seen[:-1])


def test_the_cli_reporter_prints_its_table(fit: Any, capsys: Any) -> None:
    reporter = tune.CLIReporter(metric_columns=["score"], parameter_columns=["n"])
    fit(train, {"n": tune.grid_search([11, 12])}, progress_reporter=reporter, verbose=None)
    shown = capsys.readouterr().out
    assert "TERMINATED" in shown
    assert "score" in shown
    assert "11" in shown


def test_a_retry_that_starts_at_once_is_reported_with_its_cause_and_its_checkpoint(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    fit(
        train,
        {"fails": "once"},
        verbose=1,
        failure_config=tune.FailureConfig(max_failures=3),
    )
    shown = capfd.readouterr().err
    (told,) = [line for line in shown.splitlines() if "Retrying" in line]
    assert told.startswith("warning: train_")
    assert " in train: RuntimeError: a stumble. Retrying: attempt 2 of 4, from " in told
    assert told.endswith("checkpoint_000000 (iteration 1).")


def test_of_many_retries_with_one_cause_three_are_reported(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    fit(
        train,
        {"fails": "always"},
        verbose=1,
        failure_config=tune.FailureConfig(max_failures=6),
    )
    shown = capfd.readouterr().err
    assert shown.count("Retrying") == 3
    assert " failed after 6 retries at test_watching_a_run.py:" in shown


def test_verbose_3_shows_each_result_of_a_trainer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def loop() -> None:
        for epoch in range(2):
            holdfast_train.report({"epoch": epoch, "loss": 0.5})

    holdfast_train.DataParallelTrainer(
        loop,
        scaling_config=holdfast_train.ScalingConfig(num_workers=1),
        run_config=holdfast_train.RunConfig(storage_path=str(tmp_path), name="run", verbose=3),
    ).fit()
    shown = capfd.readouterr().err
    assert shown.count("\n  loss: 0.5\n") == 2
    assert shown.count(" iteration 2 after ") == 2  # the result, and the end of the trial


def test_what_is_not_a_reporter_is_refused(fit: Any) -> None:
    with pytest.raises(InvalidConfig, match="progress_reporter"):
        fit(train, progress_reporter=print)
