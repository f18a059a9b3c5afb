"""What users of Ray Tune and Optuna write by habit works, or the error says what to write."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace


def message_of(results: tune.ResultGrid) -> str:
    assert results[0].error is not None
    return str(results[0].error).partition("\n")[0]


def raises(error: Exception) -> Any:
    def train(config: dict[str, Any]) -> None:
        raise error

    return train


@pytest.mark.parametrize(
    ("train", "advice"),
    [
        (lambda config: tune.report(acc=1), "Pass all metrics in one dict: report({'acc': ...})"),  # type: ignore[call-arg]
        (lambda config: tune.report(0.3, 1), "Pass all metrics in one dict: report({'loss'"),  # type: ignore[arg-type]
        (lambda config: tune.report(0.3), "not float: 0.3. Write report({'loss': value})"),  # type: ignore[arg-type]
        (lambda config: config["learning_rate"], "The config has lr, rate_of_learning. Did you"),
        (lambda config: config.lr, "The config is a dict: config['lr']"),
        (lambda trial: trial.suggest_float("x", 0, 1), "gets a dict, not an Optuna trial"),
        (
            lambda config: os.stat("data.csv"),
            "A trial runs in its own folder: pass the absolute path /",
        ),
        (
            raises(FileNotFoundError("data.csv not found.")),  # as numpy.genfromtxt
            "A trial runs in its own folder: pass the absolute path /",
        ),
        (
            raises(OSError("Unable to open file (name = './data.csv', errno = 2)")),  # as h5py
            "A trial runs in its own folder: pass the absolute path /",
        ),
    ],
)
def test_the_error_of_a_trial_explains_the_habit(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Any, advice: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").touch()
    assert advice in message_of(fit(train, {"lr": 1, "rate_of_learning": 2}))


@pytest.mark.parametrize(
    ("train", "plain"),
    [
        (lambda config: {"a": 1}["b"], "KeyError: 'b' "),
        (lambda config: os.stat("nowhere.csv"), "'nowhere.csv' "),
        (lambda config: tune.report({"a": len(config.missing)}), "no attribute 'missing' "),
    ],
)
def test_other_errors_stay_as_they_are(fit: Any, train: Any, plain: str) -> None:
    assert f"{plain}(logs: " in message_of(fit(train, {"lr": 1}))


def test_an_error_inside_a_report_is_not_taken_for_a_wrong_call(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        class Odd:
            def keys(self) -> Any:
                raise TypeError("odd keys")

        tune.report(Odd())  # type: ignore[arg-type]

    assert "in one dict" not in message_of(fit(train))


def pruned_like_optuna() -> Exception:
    """An instance of a class as `optuna.TrialPruned` is, which need not be installed."""
    made: Exception = type("TrialPruned", (Exception,), {"__module__": "optuna.exceptions"})()
    return made


@pytest.mark.parametrize("reuse", [False, True])
def test_a_function_that_raises_trial_pruned_has_stopped_its_trial(fit: Any, reuse: bool) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(3):
            tune.report({"loss": config["x"] + step})
            if config["x"] == 2 and step == 1:
                raise pruned_like_optuna()

    config = tune.TuneConfig(metric="loss", mode="min", reuse_actors=reuse)
    results = fit(train, {"x": tune.grid_search([1, 2, 3])}, config)
    assert results.num_errors == 0
    assert [result.stop_reason for result in results] == ["finished", "pruned", "finished"]
    assert [result.metrics["training_iteration"] for result in results] == [3, 2, 3]
    assert tune.load(results.experiment_path)[1].stop_reason == "pruned"


def test_another_class_of_that_name_is_an_error(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        raise type("TrialPruned", (Exception,), {"__module__": "mine"})("here")

    assert "here" in message_of(fit(train))


def test_schedulers_and_searches_work_by_name(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        for _ in range(8):
            tune.report({"loss": config["x"]})

    config = tune.TuneConfig(
        metric="loss",
        mode="min",
        max_concurrent_trials=1,
        search_alg="random",
        scheduler="ASHA",
    )
    results = fit(train, {"x": tune.grid_search([0, 1, 2])}, config)
    assert [result.metrics["training_iteration"] for result in results] == [8, 3, 3]
    with pytest.raises(
        InvalidConfig, match=r"no search algorithm 'optunas'.*Did you mean 'optuna'"
    ):
        tune.Tuner(train, tune_config=tune.TuneConfig(search_alg="optunas"))
    with pytest.raises(InvalidConfig, match=r"there is no scheduler 'ash'"):
        tune.Tuner(train, tune_config=tune.TuneConfig(scheduler="ash"))


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("AUTO", "Use resume='auto'"),
        (True, "Use resume='auto'"),
        (False, "Use resume='never', the default"),
        ("AUTO+ERRORED", "resume_config=tune.ResumeConfig(errored='resume')"),
        (
            "AUTO+RESTART_ERRORED_ONLY",
            "resume_config=tune.ResumeConfig(errored='restart', unfinished='skip')",
        ),
        ("ERRORED_ONLY", "Use fit(resume='must', resume_config=tune.ResumeConfig(errored="),
    ],
)
def test_the_words_of_rays_resume_have_their_replacement(given: Any, advice: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        tune.Tuner(print).fit(resume=given)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("space", "fault"),
    [
        (lambda: {"x": {"y": tune.uniform}}, r"param_space\['x'\]\['y'\] is a function: call it"),
        (
            lambda: {"x": tune.choice({"a": 1})},  # type: ignore[arg-type]
            "choice takes a list of values, not a dict",
        ),
        (
            lambda: {"x": tune.choice(tune.grid_search([1]))},  # type: ignore[arg-type]
            "not a grid",
        ),
    ],
)
def test_a_space_that_cannot_be_meant_is_refused(space: Any, fault: str) -> None:
    with pytest.raises(InvalidSearchSpace, match=fault):
        tune.Tuner(print, param_space=space())


@pytest.mark.parametrize("mode", ["minimize", "MAX"])
def test_a_mode_in_other_words_is_refused_with_the_right_one(mode: Any) -> None:
    with pytest.raises(InvalidConfig, match=f"Did you mean '{mode[:3].lower()}'"):
        tune.TuneConfig(metric="loss", mode=mode)


class Counts(tune.Trainable):
    def step(self) -> Any:
        return 3


class OfOldRay(tune.Trainable):
    def _setup(self, config: dict[str, Any]) -> None:
        """As in Ray before 1.0."""

    def _train(self) -> dict[str, Any]:
        return {"loss": 1}


def test_a_class_that_cannot_work_is_refused_before_a_trial() -> None:
    with pytest.raises(
        InvalidConfig, match=r"must define step\(\): _train\(\) is step\(\) now, _s"
    ):
        tune.Tuner(OfOldRay)
    saving = tune.RunConfig(checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1))
    with pytest.raises(InvalidConfig, match=r"checkpoint_at_end need Counts\.save_checkpoint\(\)"):
        tune.Tuner(Counts, run_config=saving)


def test_a_parameter_that_the_function_does_not_have_is_refused_at_once() -> None:
    def train(config: dict[str, Any], data: int) -> None: ...

    with pytest.raises(InvalidConfig, match=r"argument 'more'. It is train\(config: "):
        tune.with_parameters(train, data=1, more=2)
    assert tune.with_parameters(train, data=1) is not None


def test_words_of_older_versions_name_the_present_ones(tmp_path: Path) -> None:
    config, sync, resources = tune.CheckpointConfig, tune.SyncConfig, tune.with_resources
    calls: list[tuple[Any, dict[str, Any], str]] = [
        (config, {"keep_checkpoints_num": 2}, "Use num_to_keep=2"),
        (sync, {"upload_dir": "s3://b"}, r"Use .*RunConfig\(storage_path=...\)"),
        (partial(resources, Counts), {"resources_per_trial": {"cpu": 1}}, "Use resources"),
    ]
    for call, given, advice in calls:
        with pytest.raises(TypeError, match=advice):
            call(**given)
    (model := tmp_path / "m.pt").touch()
    with pytest.raises(ValueError, match="Put it into a folder of its own, and pass that"):
        tune.Checkpoint.from_directory(model)
