"""Habits of scripts that people run with Ray, each shortened to its core."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.nightly import rest_nightly

HEAD = """
import os, tempfile
import ray
from ray import train, tune

def fit(trainable, space=None, **settings):
    given = {"storage_path": tempfile.mkdtemp()} | settings.pop("run", {})
    return tune.Tuner(
        trainable,
        param_space=space or {},
        tune_config=tune.TuneConfig(**settings),
        run_config=tune.RunConfig(**given),
    ).fit()
"""
SCRIPTS = {
    "outside a trial, tune's calls warn and return None": """
def f(config):
    tune.report({"loss": config["x"]})
    tune.report(loss=config["x"])
    with tune.checkpoint_dir(step=1) as folder:
        open(os.path.join(folder, "a"), "w").close()
    context = tune.get_context()
    assert train.get_dataset_shard("train") is None and tune.get_checkpoint() is None
    assert (context.get_world_size(), context.get_world_rank()) == (1, 0)
    return context.get_trial_id()

assert f({"x": 1}) is None and not os.listdir(".")
""",
    "names of older Rays and of inner modules are there": """
from importlib.metadata import version
from ray.train._internal.session import get_session
from ray.tune.suggest.suggestion import Searcher
from ray.tune.trial import ExportFormat
from ray.tune.tuner import RunConfig, TuneConfig

class T(tune.Trainable):
    def step(self):
        assert get_session()
        worker = ray.worker.global_worker.worker_id.hex()
        return {"seen": self._iteration, "time": self._time_total, "worker": worker, "done": True}

    def save_checkpoint(self, folder):
        open(os.path.join(folder, "x"), "w").close()

assert get_session() is None and ExportFormat.MODEL == "model"
assert version("ray") == ray.__version__
ray.init(runtime_env={"working_dir": ".", "excludes": ["*.bin"]})
kept = train.CheckpointConfig(checkpoint_at_end=True)
result = fit(T, run={"checkpoint_config": kept})[0]
assert result.metrics["seen"] == 0 and result.metrics["worker"]
assert "x" in os.listdir(result.checkpoint.value)
""",
    "what only has no effect ends no run": """
from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.stopper import TrialPlateauStopper

def f(config):
    for step in range(4):
        tune.report({"acc": config["lr"] * step})

lrs = [0.1, 0.2, 0.3]
pbt = PopulationBasedTraining(perturbation_interval=1, hyperparam_mutations={"lr": lrs})
space, stop = {"lr": tune.grid_search(lrs)}, TrialPlateauStopper(metric="absent")
grid = fit(f, space, run={"stop": stop}, metric="acc", mode="max", scheduler=pbt)
assert [result.metrics["training_iteration"] for result in grid] == [4, 4, 4]
""",
    "resume_errored and restart_errored together resume": """
place = os.path.join(tempfile.mkdtemp(), "flag")
open(place, "w").close()

def f(config):
    assert not os.path.exists(place)
    tune.report({"a": 1})

path = fit(f).experiment_path
os.remove(place)
tuner = tune.Tuner.restore(path, f, resume_errored=True, restart_errored=True)
assert tuner.fit()[0].metrics["a"] == 1
""",
    "a function allocates resources as Ray's documentation shows it": """
from ray.tune.schedulers import FIFOScheduler, ResourceChangingScheduler

def allocate(controller, trial, result, scheduler):
    least = scheduler._base_trial_resources.required_resources["CPU"]
    assert controller._resource_updater.get_num_cpus() >= least
    return tune.PlacementGroupFactory([{"CPU": least, "custom": 0}])

def f(config):
    for step in range(2):
        with tempfile.TemporaryDirectory() as folder:
            tune.report({"a": 1}, checkpoint=tune.Checkpoint.from_directory(folder))

scheduler = ResourceChangingScheduler(FIFOScheduler(), allocate)
assert not fit(tune.with_resources(f, {"cpu": 1}), scheduler=scheduler).errors
""",
    "a data config of one's own": """
from ray.data import DataContext, ExecutionOptions
from ray.train.data_parallel_trainer import DataParallelTrainer

DataContext.get_current().execution_options.preserve_order = True
options = train.DataConfig.default_ingest_options()
options.resource_limits.cpu = 2
train.DataConfig(execution_options=options)
assert isinstance(options, ExecutionOptions)

class Own(train.DataConfig):
    def __init__(self):
        pass

    def configure(self, datasets, world_size, worker_handles, worker_node_ids, **kwargs):
        assert len(worker_handles) == world_size
        return [{"train": ray.data.range(10).iterator()} for _ in range(world_size)]

def loop():
    train.report({"rows": sum(1 for _ in train.get_dataset_shard("train").iter_rows())})

trainer = DataParallelTrainer(
    loop, dataset_config=Own(), scaling_config=train.ScalingConfig(num_workers=1)
)
assert trainer.fit().metrics["rows"] == 10
""",
    "a table of each trial's last row": """
def f(config):
    for peak in (0, 5, -5, 1):
        tune.report({"peak": peak, "asc": config["id"]})

run = tune.run(
    f, config={"id": tune.grid_search([1, 2])}, metric="asc", mode="max",
    storage_path=tempfile.mkdtemp(),
)
assert run.dataframe(metric="peak")["peak"].tolist() == [1, 1]
assert run.dataframe(metric="peak", mode="max")["peak"].tolist() == [5, 5]
assert list(run.best_dataframe) == list(run.trial_dataframes[run.best_trial.trial_id])
""",
}
# The name is used, and the error says what to write.
REPLACED = {
    "tune.Analysis('x')": "Use tune.ExperimentAnalysis(path)",
    "tune.logger.DEFAULT_LOGGERS + (1,)": "Use tune.logger.LoggerCallback",
    "tune.logger.LegacyLoggerCallback([])": "Use tune.logger.LoggerCallback",
    "tune.integration.wandb.wandb_mixin(1)": "setup_wandb(config)",
    "tune.integration.mlflow.mlflow_mixin(1)": "setup_mlflow(config)",
    "tune.utils.unflatten_dict({})": "Use a short function of your own",
    "tune.examples.mnist_pytorch.train_mnist({})": "Use a copy of that file of Ray's",
    "tune.utils.mock_trainable.MyTrainableClass()": "Use a copy of that file of Ray's",
    "tune.run('PPO')": "has no reinforcement learning",
}


def run(script: str, folder: Path) -> str:
    (folder / "script.py").write_text(HEAD + script)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "ray", "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / "script.py").unlink()
    return done.stderr if done.returncode else ""


@pytest.mark.process
@pytest.mark.parametrize("name", rest_nightly(4, SCRIPTS))
def test_a_habit_works(name: str, tmp_path: Path) -> None:
    assert not run(f"os.chdir(tempfile.mkdtemp())\n{SCRIPTS[name]}", tmp_path)


def test_names_that_are_gone_say_what_to_write(tmp_path: Path) -> None:
    lines = [
        f"try:\n    {use}\nexcept Exception as error:\n    assert {told!r} in str(error), error\n"
        f"else:\n    raise AssertionError({use!r})"
        for use, told in REPLACED.items()
    ]
    modules = "import ray.tune.integration.wandb, ray.tune.integration.mlflow\n"
    assert not run(modules + "\n".join(lines), tmp_path)
