"""`holdfast ray` runs a script as Python does, and its processes know what `import ray` means."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.rig import checker, held_reports
from tests.rig.bench import Bench, workbench
from tests.rig.nightly import rest_nightly

SCRIPT = """
import sys
from ray import tune

class Model: ...

print(__name__, __file__, sys.argv, sys.path[0], Model.__module__)
if len(sys.argv) > 1:
    raise ValueError("as in Python")
sys.exit(3)
"""
# The trainable is in a module, so workers find it by its name.
MODULE = """
import ray.tune as t

def train(config):
    from ray.train.data_parallel_trainer import DataParallelTrainer  # first imported here
    for step in range(4):
        t.report({"x": config["x"] * step, "home": DataParallelTrainer.__module__})
"""
TUNER = """
import multiprocessing

import holdfast.ray

import ray
from ray import tune
import model

def square(x):
    return x * tune.choice([x]).sample()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(square, [3]) == [9]
    results = tune.Tuner(
        model.train,
        param_space={"x": tune.grid_search([1, 2])},
        run_config=tune.RunConfig(name="run", storage_path="results"),
    ).fit()
    assert not results.errors, results.errors
    print("DONE", [result.metrics["x"] for result in results], results[0].metrics["home"])
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, Path()) as made:
        yield made


def python(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, env=os.environ
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments", [[], ["--lr", "3", "-m", "#"]])
def test_a_script_is_run_as_python_runs_it(tmp_path: Path, arguments: Sequence[str]) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    changed = tmp_path / "changed.py"
    changed.write_text(SCRIPT.replace("from ray", "from holdfast"))
    code, out, err = python("-m", "holdfast.ray", str(path), *arguments)
    wanted = python(str(changed), *arguments)
    assert (code, out, err) == (
        wanted[0],
        *(one.replace("changed", "script") for one in wanted[1:]),
    )
    assert code == (1 if arguments else 3)


def test_a_module_is_run_as_a_script(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "tuning.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "ray", "-m", "package.tuning"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    name, file, *_ = done.stdout.split()
    assert (name, Path(file)) == ("__main__", tmp_path / "package" / "tuning.py")


def test_without_a_script_it_says_what_it_needs() -> None:
    code, _, err = python("-m", "holdfast", "ray")
    assert (code, "holdfast ray needs a script" in err) == (2, True)


@pytest.mark.process
@pytest.mark.parametrize("cluster", rest_nightly(1, ["", "local://?agents=1&cpus_per_node=1"]))
def test_an_import_of_holdfast_ray_is_enough_for_workers_nodes_and_pools(
    bench: Bench, cluster: str
) -> None:
    bench.write(MODULE, "model.py")
    bench.environ["HOLDFAST_CLUSTER"] = cluster
    script = bench.run(bench.write(TUNER), cwd=bench.folder)
    script.succeeds()
    assert "DONE [3, 6] holdfast." in script.stdout


@pytest.mark.process
def test_the_command_that_resumes_a_run_knows_what_import_ray_meant(bench: Bench) -> None:
    bench.write(MODULE, "model.py")
    path = bench.write(TUNER.replace("import holdfast.ray", ""))
    bench.environ |= held_reports.environ_for(2)
    gate = bench.gate(held_reports.REPORTED)
    script = bench.run(Path("-m"), "holdfast", "ray", str(path), cwd=bench.folder)
    script.wait_for(held_reports.REPORTED)
    script.dies()
    gate.open()
    root = bench.folder / "results" / "run"
    bench.run(Path("-m"), "holdfast", "resume", str(root), cwd=bench.folder).succeeds()
    assert [len(trial.rows) for trial in checker.fold(root).trials.values()] == [4, 4]


@pytest.mark.process
def test_a_trainable_for_a_run_that_is_named_by_its_uri_gets_the_same_ray(bench: Bench) -> None:
    (bench.folder / "installed").mkdir()
    bench.write("raise AssertionError('Ray itself')", "installed/ray.py")
    bench.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(bench.folder / "installed"), bench.environ.get("PYTHONPATH")))
    )
    bench.write(MODULE, "model.py")
    path = bench.write(TUNER.replace("import holdfast.ray", ""))
    bench.run(Path("-m"), "holdfast", "ray", str(path), cwd=bench.folder).succeeds()
    uri = (bench.folder / "results" / "run").as_uri()
    words = ("resume", uri, "--trainable", "model.py:train")
    bench.run(Path("-m"), "holdfast", *words, cwd=bench.folder).succeeds()
