"""CONTRIBUTING.md and docs/adding.md are right: their files exist, their recipes work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

ROOT = Path(__file__).parent.parent
RECIPES = (ROOT / "docs/adding.md").read_text()
TEXT = (ROOT / "CONTRIBUTING.md").read_text() + RECIPES
ROOMS = ["experiment", "results", "runtime", "scheduler", "syncer", "trial"]
TOLD = re.compile(r"[Hh]ere\s+`([\w/]+\.py)`")
BLOCK = re.compile(r"(.*?)^```python\n(.*?)^```$", re.S | re.M)
TRACKED = """
import json, sys
from holdfast import tune
from holdfast.air.integrations.lines import LinesLoggerCallback

def train(config):
    for epoch in range(3):
        tune.report({"loss": epoch})

if __name__ == "__main__":
    callbacks = [LinesLoggerCallback(sys.argv[1] + "/lines")]
    run_config = tune.RunConfig(storage_path=sys.argv[1], callbacks=callbacks, verbose=0)
    tune.Tuner(train, run_config=run_config).fit()
    print([json.loads(line)["step"] for line in open(sys.argv[1] + "/lines")])
"""
CONTAINED = """
import sys
import holdfast
from holdfast import tune

def train(config):
    tune.report({"loss": config["x"]})

if __name__ == "__main__":
    docker = ["sh", "-c", 'shift 3; exec "$@"', "docker"]
    cluster = holdfast.cluster.Containers(["a", "b"], docker=docker, python=sys.executable)
    holdfast.init(cluster=cluster)
    run_config = tune.RunConfig(storage_path=sys.argv[1], name="contained", verbose=0)
    space = {"x": tune.grid_search([1, 2])}
    tuner = tune.Tuner(train, param_space=space, run_config=run_config)
    print(tuner.fit().num_terminated)
"""


def recipes() -> tuple[dict[str, str], list[str]]:
    """The files that the recipes create, and the other blocks: a store's addition to
    `location.py`, an engine's settings, and its case in `engine_of`."""
    files, others = {}, []
    for before, code in BLOCK.findall(RECIPES):
        named = TOLD.findall(before)
        if named:
            files[named[-1]] = code
        else:
            others.append(code)
    return files, others


def test_each_file_that_it_names_is_there() -> None:
    named = set(re.findall(r"[`(]([.\w-]+/[\w./-]*|[\w.-]+\.md)[`)#]", TEXT))
    made, _ = recipes()
    made["docs/cluster-containers.md"] = ""
    assert {"scheduler/policy.py", "docs/design.md", "tests/promises/"} <= named
    places = (ROOT, ROOT / "src" / "holdfast", ROOT / "docs")
    known = made.keys() | {"dist/"}
    assert [one for one in named - known if not any((p / one).exists() for p in places)] == []


def test_each_file_that_the_docstring_of_a_room_names_is_there() -> None:
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            named = re.findall(r"`([\w/]+\.py)`", init.read_text())
            assert [name for name in named if not (init.parent / name).exists()] == [], init
            assert init.read_text(), f"{init} is empty"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this one in which the recipes were followed."""
    copy = tmp_path / "checkout"
    for name in [*ROOMS, "src", "tests", "scripts"]:
        ignored = shutil.ignore_patterns("__pycache__", "*.log")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    made, (opened, settings, case) = recipes()
    for name, code in made.items():
        (copy / name).write_text(code)
    tune = copy / "src" / "holdfast" / "tune"
    for package, module, kind in [
        (tune / "schedulers.py", "scheduler.policies.patience", "PatienceScheduler"),
        (tune / "search" / "__init__.py", "tune.search.climbing", "ClimbingSearch"),
    ]:
        line = f"    from holdfast.{module} import {kind} as {kind}\n"
        edit(package, "if TYPE_CHECKING:\n", after=line)
    names = copy / "experiment" / "start" / "short_names.py"
    edit(names, "_SCHEDULERS = {\n", after='    "patience": "PatienceScheduler",\n')
    described = '    "lines": "holdfast.air.integrations.lines",\n'
    edit(copy / "src/holdfast/described.py", "str]] = {\n", after=described)
    stores = copy / "syncer/stores/location.py"
    edit(stores, "        return ArrowStore(", before=indent(opened, "        "))
    nodes = copy / "experiment" / "nodes"
    edit(nodes / "cluster_config.py", "Cluster = Local | ", before=f"{settings}\n\n")
    edit(nodes / "cluster_config.py", "Slurm | Dask | Ray\n", before="Containers | ")
    edit(nodes / "cluster_config.py", "CLUSTERS = (", after="Containers, ")
    edit(nodes / "engines.py", "    Cluster,\n", after="    Containers,\n")
    edit(nodes / "engines.py", "        case Ray():\n", before=indent(case, "        "))
    line = "    from holdfast.experiment.nodes.cluster_config import Containers as Containers\n"
    edit(copy / "src/holdfast/cluster.py", "if TYPE_CHECKING:\n", after=line)
    subprocess.run([sys.executable, copy / "scripts" / "exports"], check=True)
    return copy


def edit(path: Path, place: str, *, before: str = "", after: str = "") -> None:
    text = path.read_text()
    assert text.count(place) == 1
    path.write_text(text.replace(place, f"{before}{place}{after}"))


@pytest.mark.process
def test_its_recipes_work(checkout: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": f"{checkout}/src", "HOLDFAST_TENSORBOARD": "0"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=checkout, env=environ, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    made = run("-c", "from holdfast import tune; print(tune.create_scheduler('patience'))")
    assert "holdfast.scheduler.policies.patience.PatienceScheduler" in made
    own = ["tests/scheduler/policies/test_patience.py", "tests/tune/test_climbing.py"]
    own.append("tests/runtime/engines/test_containers.py")
    contract = ["tests/syncer/stores/test_store_contract.py", "-k", "fsspec_memory"]
    for tests in (own, contract):
        assert "passed" in run("-m", "pytest", "-q", *tests)
    results = checkout / "kept"
    results.mkdir()
    (checkout / "tracked.py").write_text(TRACKED)
    assert run("tracked.py", str(results)).splitlines()[-1] == "[1, 2, 3]"
    (checkout / "contained.py").write_text(CONTAINED)
    assert run("contained.py", str(results)).splitlines()[-1] == "2"
