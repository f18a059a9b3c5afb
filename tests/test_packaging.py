"""What is built from the checkout holds every room, and works without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = """
import holdfast, sys
from holdfast import tune

def train(config):
    tune.report({"x": config["x"]})

if __name__ == "__main__":
    results = tune.Tuner(
        train,
        param_space={"x": 3},
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="built", verbose=0),
    ).fit()
    print(holdfast.__file__, results[0].metrics["x"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), "."],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return next(out.glob("*.whl"))


def test_the_wheel_holds_every_module_of_the_checkout(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    rooms = ["experiment", "runtime", "scheduler", "syncer", "trial"]
    modules = {f"holdfast/{p.relative_to(ROOT)}" for r in rooms for p in (ROOT / r).rglob("*.py")}
    source = ROOT / "src" / "holdfast"
    public = [p for p in source.rglob("*.py") if p.relative_to(source).parts[0] not in rooms]
    assert packed == modules | {f"holdfast/{p.relative_to(source)}" for p in public}


def test_the_wheel_has_the_command(wheel: Path) -> None:
    (name,) = (n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("entry_points.txt"))
    told = zipfile.ZipFile(wheel).read(name).decode().split()
    assert told == ["[console_scripts]", "holdfast", "=", "holdfast.__main__:run"]


@pytest.mark.process
def test_an_experiment_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "results")],
        env={**os.environ, "PYTHONPATH": str(installed), "HOLDFAST_TENSORBOARD": "0"},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [str(installed / "holdfast" / "__init__.py"), "3"]
