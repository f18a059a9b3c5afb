"""A keyword that a public class does not have: the error names the right one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import holdfast
from holdfast import train, tune


@pytest.mark.parametrize(
    ("call", "given", "advice"),
    [
        (tune.Tuner, "config", "Use param_space"),
        (tune.Tuner, "num_samples", "Use tune_config=tune.TuneConfig(num_samples=...)"),
        (tune.Tuner, "local_dir", "Use run_config=tune.RunConfig(storage_path=...)"),
        (
            tune.Tuner,
            "num_to_keep",
            "Use run_config=tune.RunConfig(checkpoint_config=tune.CheckpointConfig("
            "num_to_keep=...))",
        ),
        (tune.Tuner, "resources_per_trial", "Use Tuner(tune.with_resources(trainable, "),
        (tune.Tuner, "resume", "Use fit(resume='auto')"),
        (tune.TuneConfig, "n_trials", "Use num_samples"),
        (tune.TuneConfig, "direction", "Use mode"),
        (tune.TuneConfig, "directions", "Use search_alg=tune.search.OptunaSearch(metric=[...], m"),
        (tune.TuneConfig, "n_startup_trials", "Use tune.search.OptunaSearch(sampler=optuna.sam"),
        (tune.RunConfig, "storage", "Use storage_path"),
        (tune.TuneConfig, "stop", "Use Tuner(..., run_config=tune.RunConfig(stop=...))"),
        (
            tune.RunConfig,
            "max_failures",
            "Use failure_config=tune.FailureConfig(max_failures=...)",
        ),
        (tune.CheckpointConfig, "num_keep", "Did you mean 'num_to_keep'?"),
        (train.ScalingConfig, "workers", "Did you mean 'num_workers'"),
        (train.DataParallelTrainer, "train_loop", "Did you mean 'train_loop_"),
    ],
)
def test_the_error_says_what_to_write(call: Any, given: str, advice: str) -> None:
    with pytest.raises(TypeError) as caught:
        call(**{given: 1})
    assert f"{call.__name__}() has no parameter {given!r}. {advice}" in str(caught.value)


def pruner(name: str) -> Any:
    """A pruner as Optuna has it."""
    return type(name, (), {"__module__": "optuna.pruners._some"})()


@pytest.mark.parametrize(
    ("call", "given", "text"),
    [
        (
            tune.TuneConfig,
            {"direction": "minimize", "n_trials": 50, "n_jobs": 4},
            "TuneConfig() has no parameters 'direction', 'n_trials', 'n_jobs'. direction: use "
            "mode='min'; n_trials: use num_samples=50; n_jobs: use max_concurrent_trials=4",
        ),
        (
            tune.TuneConfig,
            {"directions": ["minimize", "maximize"]},
            "TuneConfig() has no parameter 'directions'. Use "
            "search_alg=tune.search.OptunaSearch(metric=[...], mode=['min', 'max'])",
        ),
        (
            tune.TuneConfig,
            {"pruner": pruner("MedianPruner")},
            "TuneConfig() has no parameter 'pruner'. Use "
            "scheduler=tune.schedulers.MedianStoppingRule()",
        ),
        (tune.TuneConfig, {"n_jobs": -1}, "has no parameter 'n_jobs'. Use max_concurrent_trials"),
        (
            lambda **given: tune.run(print, **given),
            {"param_space": {}, "num_to_keep": 1, "hang_timeout_s": 2},
            "tune.run() has no parameters 'param_space', 'num_to_keep', 'hang_timeout_s'. "
            "param_space: use config; num_to_keep: use checkpoint_config=tune.CheckpointConfig("
            "num_to_keep=...); hang_timeout_s: use Tuner(..., run_config=tune.RunConfig(",
        ),
        (
            lambda **given: tune.run(print, **given),
            {"run_config": 1},
            "'run_config'. Use Tuner(trainable, run_config=...).fit()",
        ),
        (
            tune.TuneConfig,
            {"num_sample": 3, "nonsense": 1},
            "'num_sample', 'nonsense'. num_sample: did you mean 'num_samples'? It has mode",
        ),
        (tune.TuneConfig, {"qqq": 1}, "TuneConfig() has no parameter 'qqq'. It has mode, metric"),
        (
            lambda **given: tune.Tuner(print).fit(**given),
            {"n_trials": 9},
            "fit() has no parameter 'n_trials'. Use "
            "Tuner(..., tune_config=tune.TuneConfig(num_samples=...))",
        ),
        (
            tune.search.OptunaSearch,
            {"pruner": pruner("HyperbandPruner"), "direction": "maximize"},
            "OptunaSearch() has no parameters 'pruner', 'direction'. pruner: use Tuner(..., "
            "tune_config=tune.TuneConfig(scheduler=tune.schedulers.HyperBandScheduler())); "
            "direction: use mode='max'",
        ),
        (tune.uniform, {"low": 0, "high": 1}, "low: use lower=0; high: use upper=1"),
        (tune.uniform, {"lower": 1, "upper": 2, "log": True}, "Use tune.loguniform(lower, upper)"),
        (tune.randint, {"lower": 1, "upper": 9, "step": 2}, "Use tune.qrandint(lower, upper, q)"),
    ],
)
def test_all_unknown_keywords_are_named_at_once_with_their_values(
    call: Any, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call(**given)
    assert text in str(caught.value)


def test_other_errors_and_the_signature_stay() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        train.DataParallelTrainer()  # type: ignore[call-arg]
    assert list(inspect.signature(tune.TuneConfig).parameters)[:2] == ["mode", "metric"]
    assert tune.CheckpointConfig(num_to_keep=2) == tune.CheckpointConfig(2)


def test_a_parameter_that_neither_ray_nor_holdfast_has_is_refused_by_init() -> None:
    init: Any = holdfast.init
    with pytest.raises(TypeError) as caught:
        init(num_cpu=1)
    assert "holdfast.init() has no parameter 'num_cpu'. Did you mean 'num_cpus'?" in str(
        caught.value
    )
    assert not holdfast.is_initialized()
