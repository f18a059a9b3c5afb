"""A whole sweep file: what it becomes, and the line of each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.start.short_names import with_algorithms
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.sweep.reading import read
from holdfast.sweep.running import open_sweep
from holdfast.sweep.settings import Sweep, sweep_of
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.errors import InvalidConfig

BASE = """command: train {lr}
parameters:
  lr: {uniform: [0, 1]}
"""


def sweep(text: str, here: Path = Path("/code"), file: str = "digits.yaml") -> Sweep:
    return sweep_of(read(text, file, ".yaml"), here)


def extended(text: str, **given: Any) -> Sweep:
    return sweep(f"{BASE}num_samples: 3\nmetric: {{name: loss, goal: minimize}}\n{text}", **given)


def test_a_sweep_of_wandb_is_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    found = sweep(
        """
project: digits
description: a first try
program: train.py
method: random
run_cap: 20
metric:
  name: val_loss
  goal: minimize
parameters:
  lr: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  batch: {values: [32, 64]}
early_terminate: {type: hyperband, min_iter: 3, eta: 2}
""",
        tmp_path,
    )
    assert found.trainable.words == ("${interpreter}", "${program}", "${args}")
    assert found.tune.num_samples == 20
    assert (found.tune.metric, found.tune.mode) == ("val_loss", "min")
    assert list(found.space) == ["lr", "batch"]
    assert found.run.name == "digits"
    assert found.notes == ("digits.yaml:2: project has no effect here",)
    scheduler = found.tune.scheduler
    assert isinstance(scheduler, ASHAScheduler)
    arguments = scheduler.construction().kwargs
    assert arguments == {"grace_period": 3, "max_t": 10**12, "reduction_factor": 2}


def test_the_brackets_of_wandb_give_the_first_rung() -> None:
    found = extended("early_terminate: {type: hyperband, max_iter: 27, s: 2}")
    arguments = found.tune.scheduler.construction().kwargs
    assert arguments == {"grace_period": 3, "max_t": 27, "reduction_factor": 3}


def test_every_setting_arrives() -> None:
    found = extended(
        """
name: mine
env: {A: text, B: 1}
metrics: {loss: 'loss=(.*)'}
strict: true
grace_s: 2
resources: {cpu: 2, gpu: 0.5, memory: 1.5GiB, license: 1}
scheduler: {name: asha, max_t: 81}
max_concurrent: 4
time_budget_s: 3600
stop: {training_iteration: 50, loss: 0.1, done: true}
failure: {max_failures: 3, retry_wait_s: 1}
checkpoint: {num_to_keep: 2}
storage_path: s3://bucket/sweeps
cluster: slurm://gpu?nodes=4
verbose: 0
"""
    )
    trainable = found.trainable
    assert trainable.env == {"A": "text", "B": "1"}
    assert (trainable.strict, trainable.must_report, trainable.grace_s) == (True, True, 2.0)
    assert trainable.holdfast_resources.bundles == (
        {"CPU": 2, "GPU": 0.5, "memory": 1.5 * 2**30, "license": 1},
    )
    assert (found.tune.max_concurrent_trials, found.tune.time_budget_s) == (4, 3600)
    assert found.run.name == "mine"
    assert found.run.stop == {"training_iteration": 50, "loss": 0.1, "done": True}
    assert found.run.failure_config == FailureConfig(max_failures=3, retry_wait_s=1)
    assert found.run.checkpoint_config == CheckpointConfig(num_to_keep=2)
    assert (found.run.storage_path, found.run.verbose) == ("s3://bucket/sweeps", 0)
    assert found.cluster == "slurm://gpu?nodes=4"


def test_the_mutations_of_a_population_are_parameters() -> None:
    found = extended(
        """
scheduler:
  type: pbt
  perturbation_interval: 2
  hyperparam_mutations: {lr: {loguniform: [1e-4, 1]}, batch: [16, 32]}
"""
    )
    assert isinstance(found.tune.scheduler, PopulationBasedTraining)


@pytest.mark.parametrize(
    ("file", "here", "name"),
    [
        ("digits.yaml", "/code/mnist", "digits"),
        ("sweep.yaml", "/code/mnist", "mnist"),
        ("sweep.yaml", "/", "sweep"),
    ],
)
def test_the_name_is_the_files_or_its_folders(file: str, here: str, name: str) -> None:
    assert extended("", here=Path(here), file=file).run.name == name


@pytest.mark.parametrize(
    ("size", "amount"),
    [("8GB", 8e9), ("512MiB", 2**29), ("1k", 1000), ("1.5T", 1.5e12), ("7", 7), ("'7 b'", 7)],
)
def test_memory_has_units(size: str, amount: float) -> None:
    found = extended(f"resources: {{memory: {size}}}")
    assert found.trainable.holdfast_resources.bundles[0]["memory"] == amount


def test_a_grid_runs_once_and_a_budget_bounds_the_rest() -> None:
    grid = "command: train {lr}\nmethod: grid\nparameters: {lr: {values: [1, 2]}}\n"
    assert sweep(grid).tune.num_samples == 1
    assert sweep(f"{grid}num_samples: 2\n").tune.num_samples == 2
    assert sweep(f"{BASE}time_budget_s: 60\n").tune.num_samples == -1
    assert sweep(f"{BASE}budget: 2h\n").tune.num_samples == -1


def test_auto_has_a_number_of_trials_of_its_own_and_its_best_run_again(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    text = f"{BASE}metric: {{name: loss, goal: minimize}}\nsearch: auto\nconfirm: 3\n"
    file.write_text(text)
    opened = open_sweep(file, Settings.read({}), sets=[], given={})
    assert (opened.tune.num_samples, opened.trials) == (30, 30)
    assert opened.sweep.tune.confirm == 3
    file.write_text(f"{text}budget: 1h 30m\n")
    opened = open_sweep(file, Settings.read({}), sets=[], given={})
    assert (opened.tune.num_samples, opened.trials) == (-1, None)
    assert opened.sweep.tune.budget_seconds == 5400


def test_auto_runs_a_sweep_of_constants_once_at_random(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    metric = "metric: {name: loss, goal: minimize}"
    text = f"command: train {{lr}}\nparameters: {{lr: 0.1}}\n{metric}\n"
    file.write_text(f"{text}search: auto\n")
    opened = open_sweep(file, Settings.read({}), sets=[], given={})
    assert (opened.trials, opened.tune.search_alg) == (1, None)
    _, told = with_algorithms(opened.sweep.tune, opened.sweep.space)
    assert told.startswith("auto: random and grid search, because param_space has nothing that")
    with pytest.raises(InvalidConfig, match=r":4: search: .* nothing that AutoSearch could"):
        sweep(f"{text}search: {{name: auto, seed: 1}}\n")


def test_earlier_runs_of_a_warm_start_are_below_the_folder_of_the_file(tmp_path: Path) -> None:
    earlier = tune.Tuner(
        lambda config: tune.report({"loss": config["lr"]}),
        param_space={"lr": tune.grid_search([0.25])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(
            name="before", storage_path=str(tmp_path / "results"), verbose=0
        ),
    ).fit()
    for path in ("results/before", earlier.experiment_path):
        found = extended(f"search: {{name: auto, warm_start: [{path}]}}", here=tmp_path)
        assert "it begins with the best of 1 trial" in with_algorithms(found.tune, found.space)[1]


def test_a_command_without_placeholders_is_noticed() -> None:
    found = extended("", here=Path("/code"))
    assert found.notes == ()
    found = sweep("command: train\nparameters: {lr: 1}\nnum_samples: 1\n")
    assert "$HOLDFAST_CONFIG" in found.notes[0]
    other = sweep("command: train {lr} {data} --n={n}\nparameters: {lr: 1}\nnum_samples: 1\n")
    assert [note.partition(" in ")[0] for note in other.notes] == ["{data}", "{n}"]
    assert other.notes[0].endswith("The parameters are lr")
    macro = "command: train ${args}\nparameters: {lr: '${here}/x'}\nnum_samples: 1\n"
    (note,) = sweep(macro).notes
    assert note.startswith("parameter lr: '${here}/x' is passed as it is")
    grid = "command: train {lr} {lrs}\nmethod: grid\nparameters: {lr: {values: [1]}}\n"
    with pytest.raises(InvalidConfig, match="Did you mean 'lr'"):
        sweep(grid)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "num_sample: 3",
            r"^digits\.yaml:4: num_sample: is unknown here. Did you mean 'num_samples",
        ),
        ("", r"^digits\.yaml: num_samples \(or run_cap\) is missing"),
        ("num_samples: 3\nrun_cap: 3", r":5: run_cap: num_samples says the same"),
        ("num_samples: 0", r":4: num_samples: num_samples must be 1 or more"),
        (
            "num_samples: many",
            r":4: num_samples: must be a whole number|must be a number, not 'many'",
        ),
        ("num_samples: 1.5", r":4: num_samples: must be a whole number, not 1.5"),
        ("run_cap: 3\nmetric: loss", r":5: metric: must be a table of names"),
        ("run_cap: 3\nmetric: {name: loss}", r":5: metric: goal is missing"),
        (
            "run_cap: 3\nmetric: {name: loss, goal: min1}",
            r"goal: must be one of minimize, maximize",
        ),
        ("run_cap: 3\nscheduler: asha", "metric is missing"),
        (
            "run_cap: 3\nmethod: bayse",
            r":5: method: must be one of random, grid, bayes, not 'bayse'",
        ),
        ("run_cap: 3\nmethod: random\nsearch: optuna", r":5: method: search says the same"),
        (
            "run_cap: 3\nsearch: optunaa",
            r":5: search: there is no search algorithm 'optunaa'.*optuna",
        ),
        ("run_cap: 3\nscheduler: ahsa", r":5: scheduler: there is no scheduler 'ahsa'.*asha"),
        ("run_cap: 3\nscheduler: {name: asha, maxt: 3}", r":5: scheduler\.maxt: .*'max_t'"),
        ("run_cap: 3\nscheduler: {max_t: 3}", r":5: scheduler: name is missing"),
        ("run_cap: 3\nscheduler: {name: asha, max_t: -3}", r":5: scheduler: "),
        ("run_cap: 3\nearly_terminate: {type: hyperband}", "needs min_iter, or max_iter and s"),
        ("run_cap: 3\nearly_terminate: {min_iter: 3}", "type is missing: hyperband"),
        (
            "run_cap: 3\nearly_terminate: {type: hyperband, strict: true}",
            "strict: is not supported. Remove it",
        ),
        (
            "run_cap: 3\nresources: {memory: much}",
            r"resources\.memory: must be a size such as 8GB",
        ),
        ("run_cap: 3\nresources: {cpu: two}", r":5: resources\.cpu: must be a number, not 'two'"),
        ("run_cap: 3\nfailure: {max_failure: 3}", r":5: failure\.max_failure: .*'max_failures'"),
        (
            "run_cap: 3\nfailure: {max_failures: -3}",
            r":5: failure: max_failures must be 0 or more",
        ),
        ("run_cap: 3\ncheckpoint: {num_to_keep: 0}", r":5: checkpoint: num_to_keep must be"),
        ("run_cap: 3\nstop: {loss: low}", r":5: stop\.loss: must be a number, not 'low'"),
        ("run_cap: 3\nstrict: 'no'", r":5: strict: must be true or false, not 'no'"),
        ("run_cap: 3\nname: a/b", r":5: name: .* cannot contain a slash"),
        ("run_cap: 3\nenv: {A: true}", r":5: env\.A: must be text, not true. Put it in quotes"),
        ("run_cap: 3\nmetrics: {loss: 'x'}", "exactly one group"),
        ("run_cap: 3\ntime_budget_s: -1", r":5: time_budget_s: time_budget_s must be above 0"),
        ("run_cap: 3\nbudget: soon", r":5: budget: budget must be a time such as .2h."),
        ("run_cap: 3\nbudget: 1h\ntime_budget_s: 9", "leave one of them out"),
        ("run_cap: 3\nconfirm: 1", r":5: confirm: confirm must be 0 or at least 2"),
        ("run_cap: 3\ncwd: nowhere", "is not a folder"),
        ("run_cap: 3\nprogram: gone.py", "'gone.py' is not a file in /code"),
    ],
)
def test_a_mistake_is_named_by_its_line(text: str, fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        sweep(f"{BASE}{text}\n")


def test_a_search_that_cannot_search_the_parameters_is_refused_before_a_run() -> None:
    with pytest.raises(InvalidConfig, match=r"^digits\.yaml:4: search: lr: DEHBSearch cannot"):
        sweep(
            "command: train {lr}\nparameters: {lr: {grid_search: [1, 2]}}\n"
            "metric: {name: loss, goal: minimize}\nsearch: dehb\nnum_samples: 3\n"
        )
    found = sweep(f"{BASE}search: random\nnum_samples: 3\nmetric: {{name: a, goal: min}}\n")
    assert found.tune.num_samples == 3


def test_a_script_that_logs_to_wandb_only_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("wandb.log({'loss': 1})")
    text = "program: train.py\nparameters: {lr: 1}\nnum_samples: 1\n"
    (note,) = sweep(text, tmp_path).notes
    assert note.startswith("wandb.log is not a report")
    assert sweep(f"{text}metrics: {{loss: 'loss (.*)'}}\n", tmp_path).notes == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("parameters: {lr: 1}", r"^digits\.yaml.*command is missing"),
        ("command: train", r"^digits\.yaml.*parameters is missing"),
        ("command: 5\nparameters: {lr: 1}", r":1: command: must be text, not 5"),
        (
            "command: [a, [b]]\nparameters: {lr: 1}",
            r":1: command\[1\]: must be a word, not a list",
        ),
        ("command: [a, true]\nparameters: {lr: 1}", r"must be a word, not true. Put it in quotes"),
        ("command: a x${args}\nparameters: {lr: 1}", r":1: command: .* a word of its own"),
        ("command: a\nparameters: [1]", r":2: parameters: must be a table"),
    ],
)
def test_a_wrong_command_is_named_by_its_line(text: str, fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        sweep(f"{text}\nnum_samples: 1\n" if "parameters" not in text else f"{text}\n")
