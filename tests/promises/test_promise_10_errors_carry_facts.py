"""Promise 10. The user sees the frame of their code that failed, which trial, where the log is and
what to do next; what can be known before trial 1 is said before trial 1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rig.bench import Bench, results

pytestmark = pytest.mark.process


def failing(bench: Bench, text: str, *arguments: str) -> str:
    """The output of a script that must fail."""
    script = bench.run(bench.write(text), str(bench.storage), *arguments)
    assert script.ends() != 0
    script.finish_reading()
    assert script.left() == []
    return script.stderr


def test_an_error_of_the_users_code_names_its_line_its_trial_and_its_log(bench: Bench) -> None:
    bench.options["fail"] = [[1, 3]]
    script = bench.start().succeeds()
    (error,) = [found["error"] for found in results(script) if found["error"]]
    trial = next(bench.root.glob("*_00001_1_*"))
    assert "RuntimeError: trial 1 cannot do epoch 3" in error
    assert "user_script.py" in error
    assert "raise RuntimeError" in error
    assert str(trial) in error
    assert "holdfast/experiment" not in error.split("Traceback")[1]
    assert "cannot do epoch 3" in (trial / "error.txt").read_text()
    assert "cannot do epoch 3" in (trial / "stderr").read_text()


BEGIN = """
import sys
from holdfast import tune
from tests.rig.script import note
def train(config):
    note(what="ran")
    tune.report({"loss": 1.0, "accuracy": 0.5})
"""


def test_a_request_that_no_machine_can_satisfy_is_refused_before_trial_1(bench: Bench) -> None:
    said = failing(
        bench,
        BEGIN
        + """
tune.Tuner(tune.with_resources(train, {"cpu": 4096, "gpu": 7}),
           run_config=tune.RunConfig(storage_path=sys.argv[1], name="run")).fit()
""",
    )
    assert "ImpossibleResources" in said
    assert "4096" in said
    assert f"{len(os.sched_getaffinity(0))}" in said
    assert bench.notes() == []


def test_a_metric_that_is_never_reported_is_an_error_at_the_first_report(bench: Bench) -> None:
    said = failing(
        bench,
        BEGIN
        + """
tune.Tuner(train, tune_config=tune.TuneConfig(metric="acuracy", mode="max", num_samples=500),
           run_config=tune.RunConfig(storage_path=sys.argv[1], name="run")).fit()
""",
    )
    assert "metric='acuracy'" in said
    assert "accuracy" in said
    assert "loss" in said
    assert len(bench.notes()) < 50


def test_a_storage_that_is_a_file_is_refused_before_trial_1_saying_what_was_tried(
    bench: Bench,
) -> None:
    bench.storage.write_text("not a directory")
    said = failing(
        bench,
        BEGIN
        + """
tune.Tuner(train, run_config=tune.RunConfig(storage_path=sys.argv[1], name="run")).fit()
""",
    )
    assert f"write to {bench.storage}" in said
    assert "Not a directory" in said
    assert "Choose another RunConfig(storage_path=...)" in said
    assert bench.notes() == []


def test_an_unpicklable_trainable_names_the_variable_at_fault(bench: Bench) -> None:
    said = failing(
        bench,
        """
import sys, threading
from holdfast import tune
def make():
    shared = {"lock": threading.Lock()}
    def train(config):
        with shared["lock"]:
            tune.report({"x": 1})
    return train
tune.Tuner(make(), run_config=tune.RunConfig(storage_path=sys.argv[1], name="run")).fit()
""",
    )
    assert "variable 'shared'['lock'] is a lock" in said
    assert not list(Path(bench.root).glob("journal/*.log"))


def test_a_module_that_only_the_script_can_import_is_an_error_before_trial_1(
    bench: Bench,
) -> None:
    said = failing(
        bench,
        """
import sys, types
from holdfast import tune
module = types.ModuleType("made_up")
exec("def train(config): pass", module.__dict__)
sys.modules["made_up"] = module
module.train.__module__ = "made_up"
tune.Tuner(module.train, run_config=tune.RunConfig(storage_path=sys.argv[1], name="run")).fit()
""",
    )
    assert "the trainable cannot be loaded in a worker process" in said
    assert "made_up" in said
