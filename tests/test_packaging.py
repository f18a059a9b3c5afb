"""The wheel built from the checkout has every room, and works without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tests" / "installed.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that scripts/release has built, or one that is built now."""
    if "HOLDFAST_WHEEL" in os.environ:
        return Path(os.environ["HOLDFAST_WHEEL"])
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
    rooms = ["experiment", "results", "runtime", "scheduler", "syncer", "trial"]
    modules = {f"holdfast/{p.relative_to(ROOT)}" for r in rooms for p in (ROOT / r).rglob("*.py")}
    source = ROOT / "src" / "holdfast"
    public = [p for p in source.rglob("*.py") if p.relative_to(source).parts[0] not in rooms]
    assert packed == modules | {f"holdfast/{p.relative_to(source)}" for p in public}


def test_the_wheel_holds_modules_the_licence_the_page_version_of_ray_and_no_more(
    wheel: Path,
) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    others = [name for name in names if not name.endswith(".py")]
    (info,) = {name.partition("/")[0] for name in others} - {"holdfast"}
    wanted = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]
    source = ROOT / "src" / "holdfast"
    page = [p for p in (source / "web" / "static").rglob("*") if p.is_file()]
    ray = [p for p in (source / "ray").rglob("METADATA") if p.is_file()]
    served = {f"holdfast/{p.relative_to(source)}" for p in (*page, *ray)}
    tables = {"holdfast/py.typed", "holdfast/compat/names.toml"}
    assert set(others) == {f"{info}/{name}" for name in wanted} | tables | served
    assert {name.partition("/")[0] for name in names} == {"holdfast", info}
    packed = zipfile.ZipFile(wheel).read(f"{info}/licenses/LICENSE")
    assert packed == (ROOT / "LICENSE").read_bytes()


def test_the_wheel_has_the_command(wheel: Path) -> None:
    (name,) = (n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("entry_points.txt"))
    told = zipfile.ZipFile(wheel).read(name).decode().split()
    assert told == ["[console_scripts]", "holdfast", "=", "holdfast.__main__:run"]


@pytest.mark.process
def test_an_experiment_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    storage = tmp_path / "results"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(storage)],
        env={**os.environ, "PYTHONPATH": str(installed), "HOLDFAST_TENSORBOARD": "0"},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    where = str(installed / "holdfast" / "__init__.py")
    assert done.stdout.splitlines() == [
        where,
        "1 of 3 failed, then 0 of 3",
        "epoch at which each began: [0, 0, 1]",
        "best: {'x': 1}",
    ]
