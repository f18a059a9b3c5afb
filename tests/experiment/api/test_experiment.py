"""`tune.Experiment`: the settings of `tune.run` as a value."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.api.run import experiments_in
from holdfast.experiment.worker import trainables
from holdfast.syncer.errors import DirectoryMissing
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import PlacementGroupFactory


def trains(config: dict[str, Any]) -> None:
    """A trainable."""


class Steps(tune.Trainable):
    """A class trainable."""


def test_it_holds_what_a_tuner_is_made_of(tmp_path: Path) -> None:
    made = tune.Experiment(
        "digits",
        trains,
        stop={"loss": 1},
        config={"lr": tune.uniform(0, 1)},
        num_samples=3,
        time_budget_s=9,
        storage_path=tmp_path,
        sync_config={"sync_period": 7},
        checkpoint_config={"num_to_keep": 2},
        max_failures=4,
    )
    assert (made.name, made.run_identifier, list(made.config)) == ("digits", "trains", ["lr"])
    assert made.public_spec == {"stop": {"loss": 1}, "num_samples": 3, "time_budget_s": 9}
    assert made.run_config.sync_config.sync_period == 7
    assert made.checkpoint_config.num_to_keep == 2
    assert made.run_config.failure_config.max_failures == 4
    assert made.path == made.local_path == made.remote_path == str(tmp_path / "digits")
    assert tune.Experiment(None, trains).path is None


def test_several_stoppers_become_one() -> None:
    stoppers = [tune.stopper.MaximumIterationStopper(2), tune.stopper.NoopStopper()]
    made = tune.Experiment("a", trains, stop=stoppers)
    assert isinstance(made.stopper, tune.stopper.CombinedStopper)
    assert made.public_spec["stop"] == {}


@pytest.mark.parametrize(
    ("resources", "bundle"),
    [
        ({"cpu": 2, "gpu": 1}, {"CPU": 2, "GPU": 1}),
        ({"cpu": 1, "custom_resources": {"licence": 1}}, {"CPU": 1, "licence": 1}),
        (PlacementGroupFactory([{"CPU": 3}]), {"CPU": 3}),
    ],
)
@pytest.mark.parametrize("run", [trains, Steps])
def test_resources_are_bound_to_the_trainable(run: Any, resources: Any, bundle: Any) -> None:
    made = tune.Experiment("a", run, resources_per_trial=resources)
    asked = trainables.resources_of(made.trainable)
    assert isinstance(asked, PlacementGroupFactory)
    assert asked.bundles == (bundle,)
    assert trainables.name_of(made.trainable) == run.__name__


def test_resources_may_be_a_function_of_the_config() -> None:
    made = tune.Experiment("a", trains, resources_per_trial=lambda config: {"cpu": config["n"]})
    asked = trainables.resources_of(made.trainable)
    assert callable(asked)
    assert asked({"n": 4}).bundles == ({"CPU": 4},)


@pytest.mark.parametrize("run", [trains, Steps])
def test_a_checkpoint_to_begin_from_and_resources_are_held_together(
    run: Any, tmp_path: Path
) -> None:
    made = tune.Experiment("a", run, restore=tmp_path, resources_per_trial={"cpu": 2})
    start = trainables.start_of(made.trainable)
    assert start is not None
    assert start.path == str(tmp_path)
    assert trainables.resources_of(made.trainable).bundles == ({"CPU": 2},)  # type: ignore[union-attr]
    assert trainables.start_of(run) is None


def test_a_trainer_begins_from_it_and_keeps_its_own_resources(tmp_path: Path) -> None:
    trainer = train.DataParallelTrainer(trains)
    assert tune.Experiment("a", trainer, restore=tmp_path).trainable.start.path == str(tmp_path)
    with pytest.raises(InvalidConfig, match=r"those of its ScalingConfig"):
        tune.Experiment("a", trainer, resources_per_trial={"cpu": 1})


def test_the_older_names_of_checkpoint_settings_are_understood() -> None:
    spec = {
        "run": Steps,
        "checkpoint_freq": 5,
        "checkpoint_at_end": True,
        "keep_checkpoints_num": 2,
        "checkpoint_score_attr": "min-loss",
    }
    kept = tune.Experiment.from_json("a", spec).checkpoint_config
    assert (kept.checkpoint_frequency, kept.checkpoint_at_end, kept.num_to_keep) == (5, True, 2)
    assert (kept.checkpoint_score_attribute, kept.checkpoint_score_order) == ("loss", "min")
    spec["checkpoint_score_attr"] = "accuracy"
    kept = tune.Experiment.from_json("a", spec).checkpoint_config
    assert (kept.checkpoint_score_attribute, kept.checkpoint_score_order) == ("accuracy", "max")
    assert spec["run"] is Steps  # the caller's dict stays as it was


def test_a_dict_of_specs_or_a_list_is_read() -> None:
    one = tune.Experiment("one", trains)
    specs = {"two": {"run": trains, "env": "Maze"}, "three": {"run": Steps, "num_samples": 2}}
    found = experiments_in([one, specs])
    assert [each.name for each in found] == ["one", "two", "three"]
    assert found[1].config == {"env": "Maze"}
    assert found[2].tune_config.num_samples == 2


def test_a_trainable_is_registered_by_its_name() -> None:
    def unusual_name(config: dict[str, Any]) -> None:
        pass

    assert tune.Experiment.register_if_needed(unusual_name) == "unusual_name"
    assert tune.Experiment("a", "unusual_name").trainable is unusual_name
    assert tune.Experiment.get_trainable_name("anything") == "anything"


def test_local_dir_is_storage_path_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = tune.Experiment("a", trains, local_dir="/somewhere")
    assert made.run_config.storage_path == "/somewhere"
    assert "local_dir is the older name of storage_path" in caplog.text


@pytest.mark.parametrize(
    ("given", "error", "fault"),
    [
        ({"config": [1]}, InvalidConfig, r"config must be a dict, not \[1\]"),
        ({"export_formats": ["onnx"]}, InvalidConfig, "export_formats are for a Trainable class"),
        ({"restore": "/nowhere"}, DirectoryMissing, "/nowhere"),
        ({"storage_path": "a", "local_dir": "b"}, InvalidConfig, "pass storage_path only"),
        ({"sync_config": "auto"}, InvalidConfig, "must be a SyncConfig or a dict, not 'auto'"),
        ({"upload_dir": "s3://b"}, TypeError, "no parameter 'upload_dir'. Use storage_path"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: Any, error: type[Exception], fault: str) -> None:
    with pytest.raises(error, match=fault):
        tune.Experiment("a", trains, **given)


@pytest.mark.parametrize("given", [{"a": {"stop": {}}}, 3, "name"])
def test_what_is_no_experiment_is_refused(given: Any) -> None:
    with pytest.raises(InvalidConfig):
        experiments_in(given)
