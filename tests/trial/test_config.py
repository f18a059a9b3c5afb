"""Settings are checked at construction, and those of a journal before anything uses them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.compat.advice import checked
from holdfast.trial.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    SyncConfig,
    TuneConfig,
    checked_options,
)
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.scaling import ScalingConfig
from holdfast.trial.stoppers import Stopper


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tags": ["data"]}, "tags must be a table of names and values, not a list of 1"),
        ({"tags": {"data": 3}}, "tags must be text, not 3"),
        ({"tags": {"data": {"v": "3"}}}, "tags must be text, not a dict of 1"),
        ({"verbose": 9}, "verbose must be 0 to 3, not 9"),
        ({"objects": "callbacks"}, "objects must be a list, not 'callbacks'"),
        ({"trainer": "os.system"}, "trainer must be the name of a class, not 'os.system'"),
        ({"log_to_file": "../out"}, "log_to_file"),
    ],
)
def test_an_option_of_a_wrong_type_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        checked_options(options)


def test_two_workers_ask_for_two_cpus_and_the_coordinator_for_none() -> None:
    factory = ScalingConfig(num_workers=2).as_placement_group_factory()
    assert [dict(bundle) for bundle in factory.bundles] == [{}, {"CPU": 1}, {"CPU": 1}]
    assert factory.required_resources == {"CPU": 2}


def test_what_is_asked_for_is_added_up() -> None:
    config = ScalingConfig(
        trainer_resources={"CPU": 0.5},
        num_workers=3,
        use_gpu=True,
        resources_per_worker={"cpu": 2, "disk": 1},
        placement_strategy="SPREAD",
    )
    assert config.total_resources == {"CPU": 6.5, "GPU": 3, "disk": 3}
    assert config.num_cpus_per_worker == 2
    assert config.num_gpus_per_worker == 1
    assert config.additional_resources_per_worker == {"disk": 1}
    assert config.as_placement_group_factory().strategy == "SPREAD"


@pytest.mark.parametrize(
    "config",
    [
        ScalingConfig(),
        ScalingConfig(num_workers=2, use_gpu=True),
        ScalingConfig(num_workers=4, trainer_resources={"CPU": 1}, resources_per_worker={"a": 1}),
    ],
)
def test_a_config_comes_back_from_its_factory(config: ScalingConfig) -> None:
    again = ScalingConfig.from_placement_group_factory(config.as_placement_group_factory())
    assert again.as_placement_group_factory() == config.as_placement_group_factory()


def test_bundles_that_differ_make_no_config() -> None:
    factory = PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 2}])
    with pytest.raises(InvalidConfig, match="not all the same"):
        ScalingConfig.from_placement_group_factory(factory)


def test_a_pair_is_the_least_and_the_most() -> None:
    config = ScalingConfig(num_workers=(2, 4))
    assert (config.least_workers, config.most_workers, config.is_elastic) == (2, 4, True)
    assert len(config.as_placement_group_factory(3).bundles) == 4
    assert not ScalingConfig(num_workers=2).is_elastic


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"num_workers": 0}, "num_workers must be at least 1"),
        ({"num_workers": -1}, "num_workers must be at least 1"),
        ({"num_workers": (0, 2)}, "num_workers must be at least 1"),
        ({"num_workers": (3, 2)}, "a pair must be"),
        ({"num_workers": 1.5}, "whole number"),
        ({"num_workers": True}, "whole number"),
        ({"num_workers": None}, "whole number"),
        ({"num_workers": (1, 2, 3)}, "whole number"),
        ({"placement_strategy": "NEAR"}, "placement_strategy='NEAR'"),
        ({"resources_per_worker": {"GPU": 1}}, "set use_gpu=True"),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 0}}, "needs a GPU"),
        ({"resources_per_worker": {"CPU": -1}}, "'CPU' must be zero or more"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        ScalingConfig(**wrong)


NAN = float("nan")
INFINITE = float("inf")


def stop_function(trial_id: str, result: dict[str, Any]) -> bool:
    return False


REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (CheckpointConfig, {"num_to_keep": 0}, "num_to_keep must be a positive whole number.*not 0"),
    (CheckpointConfig, {"num_to_keep": -1}, "num_to_keep"),
    (CheckpointConfig, {"num_to_keep": 1.5}, "num_to_keep"),
    (CheckpointConfig, {"num_to_keep": True}, "num_to_keep"),
    (CheckpointConfig, {"num_to_keep": "1"}, "num_to_keep"),
    (CheckpointConfig, {"checkpoint_score_order": "best"}, "'max' or 'min', not 'best'"),
    (CheckpointConfig, {"checkpoint_score_order": None}, "'max' or 'min', not None"),
    (CheckpointConfig, {"checkpoint_frequency": -1}, "checkpoint_frequency.*not -1"),
    (CheckpointConfig, {"checkpoint_frequency": 0.5}, "checkpoint_frequency"),
    (FailureConfig, {"max_failures": -2}, "max_failures must be 0 or more, or -1.*not -2"),
    (FailureConfig, {"max_failures": 1.0}, "max_failures"),
    (FailureConfig, {"max_failures": None}, "max_failures"),
    (FailureConfig, {"fail_fast": "yes"}, "fail_fast must be True, False or 'raise', not 'yes'"),
    (FailureConfig, {"fail_fast": 1}, "fail_fast must be"),
    (FailureConfig, {"fail_fast": True, "max_failures": 3}, "max_failures=3 would never be used"),
    (FailureConfig, {"fail_fast": "raise", "max_failures": -1}, "set one of them"),
    (FailureConfig, {"max_lost_workers": -2}, "max_lost_workers must be 0 or more, or -1"),
    (FailureConfig, {"max_out_of_memory": True}, "max_out_of_memory must be .* not True"),
    (FailureConfig, {"max_preemptions": "3"}, "max_preemptions must be .* not '3'"),
    (FailureConfig, {"max_errored_trials": -1}, "max_errored_trials must be 0 or more, or None"),
    (FailureConfig, {"retry_wait_s": -1}, "retry_wait_s must be a number of seconds"),
    (FailureConfig, {"retry_wait_s": float("nan")}, "retry_wait_s must be .* not nan"),
    (FailureConfig, {"longest_retry_wait_s": float("inf")}, "longest_retry_wait_s .* not inf"),
    (FailureConfig, {"preemption_grace_s": None}, "preemption_grace_s must be .* not None"),
    (FailureConfig, {"hang_timeout_s": 0}, "hang_timeout_s must be .* above 0, or None, not 0"),
    (SyncConfig, {"sync_period": 0}, "sync_period must be a number of seconds above 0, not 0"),
    (SyncConfig, {"sync_period": NAN}, "sync_period"),
    (SyncConfig, {"sync_period": "300"}, "sync_period"),
    (SyncConfig, {"sync_timeout": -1}, "sync_timeout"),
    (RunConfig, {"failure_config": {"max_failures": 1}}, "failure_config must be a FailureConfig"),
    (RunConfig, {"checkpoint_config": 3}, "checkpoint_config must be a CheckpointConfig, not 3"),
    (SyncConfig, {"syncer": "aws s3 sync"}, r"syncer='aws s3 sync'\): .* without a syncer"),
    (RunConfig, {"storage_path": "a", "local_dir": "b"}, "pass storage_path only"),
    (RunConfig, {"sync_config": "auto"}, "sync_config must be a SyncConfig, not 'auto'"),
    (RunConfig, {"name": ""}, "name must be a non-empty string"),
    (RunConfig, {"name": ".."}, "name must be"),
    (RunConfig, {"name": 7}, "name must be a non-empty string, not 7"),
    (RunConfig, {"name": "a/b"}, "cannot contain a slash: 'a/b'"),
    (RunConfig, {"name": "a\\b"}, "cannot contain a slash"),
    (RunConfig, {"name": "a\0b"}, "cannot contain"),
    (RunConfig, {"name": "ü" * 128}, "may have 255 bytes, not 256: 'ü+'..."),
    (RunConfig, {"verbose": 4}, "verbose must be 0 to 3, not 4"),
    (RunConfig, {"verbose": "loud"}, "verbose"),
    (RunConfig, {"stop": 10}, "stop must be a dict of metric to bound.*not 10"),
    (RunConfig, {"stop": {"loss": "low"}}, r"stop\['loss'\] must be a number.*not 'low'"),
    (RunConfig, {"stop": {"loss": NAN}}, r"stop\['loss'\]"),
    (RunConfig, {"stop": {"loss": None}}, r"stop\['loss'\]"),
    (RunConfig, {"callbacks": "logger"}, "callbacks must be a list of Callback objects"),
    (RunConfig, {"callbacks": object()}, "callbacks must be a list"),
    (RunConfig, {"log_to_file": 1}, "log_to_file must be True, a file name, or a pair"),
    (RunConfig, {"log_to_file": ("out",)}, "log_to_file"),
    (RunConfig, {"log_to_file": ("out", 2)}, "log_to_file"),
    (RunConfig, {"tags": ["v3"]}, r"tags must be a dict such as .*not \['v3'\]"),
    (RunConfig, {"tags": {"": "v3"}}, "tags: the name '' must be text without '='"),
    (RunConfig, {"tags": {"a=b": "v3"}}, "tags: the name 'a=b'"),
    (RunConfig, {"tags": {3: "v3"}}, "tags: the name 3"),
    (RunConfig, {"tags": {"data": None}}, r"tags\['data'\] must be text or a number, not None"),
    (TuneConfig, {"mode": "maximum"}, "mode must be 'max' or 'min', not 'maximum'"),
    (TuneConfig, {"metric": ""}, "metric must be the name of a reported value, not ''"),
    (TuneConfig, {"metric": 3}, "metric must be"),
    (TuneConfig, {"num_samples": 0}, "num_samples must be 1 or more, or -1.*not 0"),
    (TuneConfig, {"num_samples": -2}, "num_samples"),
    (TuneConfig, {"num_samples": 2.5}, "num_samples"),
    (TuneConfig, {"num_samples": True}, "num_samples"),
    (TuneConfig, {"max_concurrent_trials": -1}, "max_concurrent_trials.*not -1"),
    (TuneConfig, {"max_concurrent_trials": 1.5}, "max_concurrent_trials"),
    (TuneConfig, {"time_budget_s": 0}, "time_budget_s must be above 0 seconds, not 0"),
    (TuneConfig, {"time_budget_s": -INFINITE}, "time_budget_s must be above 0"),
    (TuneConfig, {"time_budget_s": timedelta(0)}, "time_budget_s must be above 0"),
    (TuneConfig, {"time_budget_s": NAN}, "time_budget_s must be seconds or a timedelta"),
    (TuneConfig, {"time_budget_s": "1h"}, "time_budget_s must be seconds or a timedelta"),
    (ResumeConfig, {"finished": "again"}, "finished must be one of .* not 'again'"),
    (ResumeConfig, {"unfinished": True}, "unfinished must be one of"),
    (ResumeConfig, {"errored": ""}, "errored must be one of"),
]


@pytest.mark.parametrize(
    ("kind", "fields", "message"), REFUSED, ids=lambda part: getattr(part, "__name__", None)
)
def test_what_cannot_mean_anything_is_refused_and_named(
    kind: type, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        kind(**fields)


ALLOWED: list[tuple[type, dict[str, Any]]] = [
    (CheckpointConfig, {"num_to_keep": 1, "checkpoint_score_order": "min"}),
    (CheckpointConfig, {"checkpoint_frequency": None, "checkpoint_at_end": True}),
    (FailureConfig, {"max_failures": -1}),
    (FailureConfig, {"fail_fast": "raise"}),
    (FailureConfig, {"max_preemptions": None, "max_lost_workers": -1, "hang_timeout_s": 0.5}),
    (FailureConfig, {"fail_fast": True, "max_failures": 0}),
    (SyncConfig, {"sync_period": 0.5, "sync_timeout": 10, "sync_artifacts": True}),
    (RunConfig, {"name": "my run.2"}),
    (RunConfig, {"stop": {"loss": 0.1, "converged": True}}),
    (RunConfig, {"stop": stop_function}),
    (RunConfig, {"stop": Stopper()}),
    (RunConfig, {"callbacks": []}),
    (RunConfig, {"log_to_file": ("out", "err")}),
    (RunConfig, {"tags": {"data": "v3", "größe": ""}}),
    (RunConfig, {"verbose": 0}),
    (TuneConfig, {"num_samples": -1, "mode": "min", "metric": "loss"}),
    (TuneConfig, {"max_concurrent_trials": 0}),
]


@pytest.mark.parametrize(("kind", "fields"), ALLOWED)
def test_what_means_something_is_kept_as_it_was_given(kind: type, fields: dict[str, Any]) -> None:
    config = kind(**fields)
    assert {name: getattr(config, name) for name in fields} == fields


def test_a_part_that_is_none_is_the_usual_one() -> None:
    config = RunConfig(
        failure_config=None,  # type: ignore[arg-type]
        checkpoint_config=None,  # type: ignore[arg-type]
        sync_config=None,  # type: ignore[arg-type]
    )
    assert config == RunConfig()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, None), (90, 90.0), (0.5, 0.5), (timedelta(minutes=2), 120.0), (INFINITE, None)],
)
def test_a_time_budget_may_be_seconds_or_a_timedelta(given: Any, seconds: float | None) -> None:
    assert TuneConfig(time_budget_s=given).budget_seconds == seconds


@pytest.mark.parametrize(
    ("config", "field", "value", "message"),
    [
        (RunConfig(), "name", "a/b", "cannot contain a slash"),
        (TuneConfig(), "num_samples", 0, "num_samples must be 1 or more"),
        (ScalingConfig(), "num_workers", 0, "num_workers must be at least 1"),
        (FailureConfig(max_failures=2), "fail_fast", True, "set one of them"),
        (ResumeConfig(), "errored", "again", "errored must be one of"),
    ],
)
def test_an_assigned_value_is_checked_when_it_is_used(
    config: Any, field: str, value: Any, message: str
) -> None:
    setattr(config, field, value)
    with pytest.raises(InvalidConfig, match=message):
        checked(config)


def test_a_bad_setting_is_a_tune_error_and_a_value_error() -> None:
    assert issubclass(InvalidConfig, TuneError)
    assert issubclass(InvalidConfig, ValueError)


def test_local_dir_is_the_older_name_of_storage_path(caplog: pytest.LogCaptureFixture) -> None:
    made = RunConfig(local_dir="/somewhere")
    assert made == replace(made) == RunConfig(storage_path="/somewhere")
    assert [one.message for one in caplog.records] == [
        "local_dir is the older name of storage_path: results are kept in /somewhere"
    ]
