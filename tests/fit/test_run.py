"""`tune.run` and `tune.run_experiments`: Ray's older functions, on the same run as `Tuner`."""

from __future__ import annotations

import inspect
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.api.run import TrialsFailed
from holdfast.experiment.worker import trainables
from holdfast.trial.errors import ExperimentExists, InvalidConfig


def descends(config: dict[str, Any]) -> None:
    for step in range(4):
        tune.report({"loss": config["lr"] / (step + 1)})
    if config.get("fails"):
        raise ValueError("no data")


class Counts(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.n = 0

    def step(self) -> dict[str, Any]:
        self.n += 1
        return {"n": self.n, "timesteps_this_iter": 10}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"n": self.n}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.n = checkpoint["n"]

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        path = os.path.join(export_dir, f"model.{export_formats[0]}")
        Path(path).write_text(str(self.n))
        return {export_formats[0]: path}


class Notes(tune.Callback):
    """Keeps what its hooks got."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        self.got.append((stop, num_samples, total_num_samples))

    def on_trial_complete(
        self, iteration: int, trials: list[Any], trial: Any, **info: Any
    ) -> None:
        self.got.append(trial.config["lr"])


def test_a_search_returns_its_analysis(tmp_path: Path) -> None:
    notes = Notes()
    analysis = tune.run(
        descends,
        name="run",
        metric="loss",
        mode="min",
        config={"lr": tune.grid_search([0.4, 0.8])},
        num_samples=2,
        stop={"training_iteration": 3},
        resources_per_trial={"cpu": 0.5},
        storage_path=str(tmp_path),
        max_concurrent_trials=1,
        reuse_actors=True,
        callbacks=[notes],
        verbose=0,
    )
    assert isinstance(analysis, tune.ExperimentAnalysis)
    assert analysis.experiment_path == str(tmp_path / "run")
    assert analysis.best_config == {"lr": 0.4}
    assert analysis.best_result is not None
    assert analysis.best_result["training_iteration"] == 3
    assert len({trial.last_result["pid"] for trial in analysis.trials}) == 1
    best = analysis.best_trial
    assert best is not None
    losses = best.metric_analysis["loss"]
    assert [losses["max"], losses["last"]] == pytest.approx([0.4, 0.4 / 3])
    assert best.placement_group_factory.bundles == ({"CPU": 0.5},)
    assert notes.got == [({"training_iteration": 3}, 2, 4), 0.4, 0.8, 0.4, 0.8]


def test_trials_that_failed_are_an_error_with_all_results_and_resume_says_what_runs_again(
    tmp_path: Path,
) -> None:
    given: dict[str, Any] = {
        "name": "run",
        "config": {"lr": 1.0, "fails": tune.grid_search([False, True])},
        "storage_path": tmp_path,
        "verbose": 0,
    }
    with pytest.raises(tune.TuneError, match=r"1 of 2 trials failed:\n  descends_\w+") as caught:
        tune.run(descends, **given)
    assert "ValueError: no data" in str(caught.value)
    assert "tune.run(..., name='run', resume='AUTO+ERRORED')" in str(caught.value)
    failed = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(failed, TrialsFailed)
    assert [trial.config["fails"] for trial in failed.trials] == [True]
    assert [trial.status for trial in failed.analysis.trials] == ["TERMINATED", "ERROR"]

    given["raise_on_failed_trial"] = False
    as_it_was = tune.run(descends, **given, resume="AUTO")
    pids = [
        [row["pid"] for row in known.results.values()] for known in (failed.analysis, as_it_was)
    ]
    assert pids[0] == pids[1]
    again = tune.run(descends, **given, resume="AUTO+RESTART_ERRORED_ONLY")
    assert [trial.last_result["training_iteration"] for trial in again.trials] == [4, 4]
    anew = [row["pid"] for row in again.results.values()]
    assert [one == other for one, other in zip(anew, pids[0], strict=True)] == [True, False]


def test_the_name_of_an_unfinished_experiment_is_refused_without_resume(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "name": "run",
        "config": {"lr": 1.0, "fails": tune.grid_search([True, False])},
        "storage_path": tmp_path,
        "verbose": 0,
        "max_concurrent_trials": 1,
        "raise_on_failed_trial": False,
    }
    tune.run(descends, fail_fast=True, **given)
    with pytest.raises(ExperimentExists, match="or resume='auto' in this script; or start a new"):
        tune.run(descends, **given)
    with pytest.raises(InvalidConfig, match="num_samples: was 1, now 2") as caught:
        tune.run(descends, resume=True, num_samples=2, fail_fast=True, **given)
    assert "pass extend=True to restore(), or together with resume=" in str(caught.value)
    more = tune.run(descends, resume=True, num_samples=2, extend=True, fail_fast=True, **given)
    assert more.trials[1].config["fails"] is False


def test_resume_without_a_name_starts_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tune.run(
            descends, config={"lr": 1.0}, storage_path=str(tmp_path), resume="AUTO", verbose=0
        )
    assert "resume has no effect without name=" in caplog.text
    with pytest.raises(TypeError, match=r"tune.run\(\) has no parameter 'loggers'"):
        tune.run(descends, loggers=[])  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("config", "message"),
    [({"num_to_keep": 0}, "num_to_keep must be a positive"), ("all", "or a dict, not 'all'")],
)
def test_a_checkpoint_config_is_a_dict_or_refused_also_with_older_words(
    config: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        tune.run(Counts, checkpoint_config=config, checkpoint_freq=2, storage_path=str(tmp_path))


def test_a_class_is_found_by_its_name_saves_exports_and_begins_from_a_checkpoint(
    tmp_path: Path,
) -> None:
    tune.register_trainable("counts", Counts)
    first = tune.run(
        "counts",
        stop={"timesteps_total": 40},
        checkpoint_freq=2,
        checkpoint_at_end=True,
        keep_checkpoints_num=1,
        checkpoint_score_attr="min-n",
        export_formats=["h5"],
        storage_path=str(tmp_path),
        verbose=0,
    )
    (trial,) = first.trials
    assert (trial.last_result["n"], trial.last_result["timesteps_total"]) == (4, 40)
    assert Path(trial.path, "model.h5").read_text() == "4"
    kept = first.get_best_checkpoint(trial, metric="n", mode="min")
    assert kept is not None
    assert Path(kept.path).name == "checkpoint_000000"
    assert first.get_last_checkpoint() == trial.checkpoint

    second = tune.run(
        Counts,
        restore=kept.path,
        stop={"training_iteration": 3},
        storage_path=str(tmp_path),
        verbose=0,
    )
    rows = second.trial_dataframes[second.trials[0].trial_id]
    assert list(rows["n"]) == [3, 4, 5]


def test_a_function_gets_the_checkpoint_to_begin_from_until_it_has_its_own(
    tmp_path: Path,
) -> None:
    def counts(config: dict[str, Any]) -> None:
        start = tune.get_checkpoint()
        assert start is not None
        n = int(Path(start.path, "n").read_text()) + 1
        folder = Path(tune.staging_directory())
        Path(folder, "n").write_text(str(n))
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_directory(folder))
        if n == 8:
            raise RuntimeError("once")

    start = tmp_path / "start"
    start.mkdir()
    Path(start, "n").write_text("7")
    analysis = tune.run(
        counts, restore=str(start), max_failures=1, storage_path=tmp_path / "results", verbose=0
    )
    assert analysis.trials[0].last_result["n"] == 9
    kept = trainables.start_of(tune.Tuner.restore(analysis.experiment_path).trainable)
    assert kept is not None
    assert kept.path == str(start)


def test_several_experiments_run_one_after_the_other_and_all_before_an_error(
    tmp_path: Path,
) -> None:
    specs = {
        name: {"run": descends, "config": config, "storage_path": str(tmp_path)}
        for name, config in (("a", {"lr": 1.0, "fails": True}), ("b", {"lr": 2.0}))
    }
    with pytest.raises(TrialsFailed, match="ValueError: no data") as caught:
        tune.run_experiments(specs, verbose=0)
    assert caught.value.analysis.experiment_path == str(tmp_path / "a")
    trials = tune.run_experiments(specs, verbose=0, resume=True, raise_on_failed_trial=False)
    assert [(trial.experiment_dir_name, trial.status) for trial in trials] == [
        ("a", "ERROR"),
        ("b", "TERMINATED"),
    ]


def test_an_experiment_has_its_own_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = tune.Experiment("one", descends, config={"lr": 1.0}, storage_path=str(tmp_path))
    with caplog.at_level(logging.WARNING):
        analysis = tune.run([one], name="other", num_samples=3, verbose=0)
    assert analysis.experiment_path == str(tmp_path / "one")
    assert len(analysis.trials) == 1
    assert "takes name, num_samples from the Experiment" in caplog.text
    with pytest.raises(InvalidConfig, match=r"not 2: use tune.run_experiments\(\[...\]\)"):
        tune.run([one, one])


# The parameters of Ray 2.60 that are neither private nor refused there.
OF_RAY = {
    "run": "run_or_experiment name metric mode stop time_budget_s config resources_per_trial "
    "num_samples storage_path storage_filesystem search_alg scheduler checkpoint_config verbose "
    "progress_reporter log_to_file trial_name_creator trial_dirname_creator sync_config "
    "export_formats max_failures fail_fast restore resume resume_config reuse_actors "
    "raise_on_failed_trial callbacks max_concurrent_trials keep_checkpoints_num "
    "checkpoint_score_attr checkpoint_freq checkpoint_at_end chdir_to_trial_dir local_dir",
    "run_experiments": "experiments scheduler verbose progress_reporter resume resume_config "
    "reuse_actors raise_on_failed_trial concurrent callbacks",
    "Experiment": "name run stop time_budget_s config resources_per_trial num_samples "
    "storage_path storage_filesystem sync_config checkpoint_config trial_name_creator "
    "trial_dirname_creator log_to_file export_formats max_failures restore local_dir",
}


@pytest.mark.parametrize("name", OF_RAY)
def test_the_parameters_are_those_of_ray_in_its_order(name: str) -> None:
    found = list(inspect.signature(getattr(tune, name)).parameters)
    assert [one for one in found if one != "extend"] == OF_RAY[name].split()
