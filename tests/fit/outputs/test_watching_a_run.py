"""Users' callbacks, loggers and progress reporters in real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig


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
    assert " in train: RuntimeError: a stumble. Retrying: attempt 2 of 7, from " in shown
    assert "checkpoint_000000 (iteration 1).\n" in shown
    assert " failed after 6 retries at test_watching_a_run.py:" in shown


def test_what_is_not_a_reporter_is_refused(fit: Any) -> None:
    with pytest.raises(InvalidConfig, match="progress_reporter"):
        fit(train, progress_reporter=print)
