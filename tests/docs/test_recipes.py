"""The code in docs/recipes.md and docs/recipes-cluster.md runs as it is, recipe by recipe."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.nightly import rest_nightly

DOCS = Path(__file__).parents[2] / "docs"
PAGE, OF_MACHINES = ((DOCS / name).read_text() for name in ("recipes.md", "recipes-cluster.md"))
BLOCK = re.compile(r"(?:<!-- needs (\w+) -->\n)?^```(python|sh)\n(.*?)^```$", re.M | re.S)
INTRODUCTION, *SECTIONS = re.split(r"^## ", PAGE, flags=re.M)
SECTIONS += re.split(r"^## ", OF_MACHINES, flags=re.M)[1:]
RECIPES = {each.partition("\n")[0]: BLOCK.findall(each) for each in SECTIONS}
[(_, _, TRAIN)] = BLOCK.findall(INTRODUCTION)
ASKS_A_BUCKET = "s3://bucket/"


def run(folder: Path, code: str, language: str = "python") -> str:
    """The output of a block that a user with one GPU has copied into this folder."""
    path = folder / f"recipe.{language}"
    path.write_text(code)
    command = [sys.executable, str(path)] if language == "python" else ["bash", "-e", str(path)]
    bin_folder = str(Path(sys.executable).parent)
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "0",
        "HOME": str(folder),
        "HOLDFAST_SHARE_DIR": str(folder / "share"),
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def can_run(needs: str, language: str, code: str) -> bool:
    return ASKS_A_BUCKET not in code and not (needs and importlib.util.find_spec(needs) is None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def play(name: str, folder: Path) -> None:
    """Every block of a recipe that can run here."""
    blocks = RECIPES[name]
    if any(language == "sh" for _, language, _ in blocks):  # they look at a run of this name
        [(_, _, first), *_] = RECIPES["Resume after a kill"]
        run(folder, first)
    before = ""  # a block continues after the one before it, like the cells of a notebook
    for needs, language, code in blocks:
        if can_run(needs, language, code):
            run(folder, code if needs or language == "sh" else before + code, language)
            before += code if language == "python" and not needs else ""


# Recipes that need a tracker or a search library run where it is installed: tests/frameworks.
HERE = [name for name, blocks in RECIPES.items() if any(can_run(*block) for block in blocks)]
# Each takes 1 to 5 s of CPU: the others run in the nightly tier.
FIRST = (
    "Resume after a kill",
    "Stop bad trials early",
    "Get the same trials again",
    "Run several experiments overnight",
)


@pytest.mark.process
@pytest.mark.parametrize(
    "name", rest_nightly(len(FIRST), [*FIRST, *(name for name in HERE if name not in FIRST)])
)
def test_a_recipe_runs_as_it_stands(name: str, folder: Path) -> None:
    play(name, folder)


@pytest.mark.process
def test_the_recipe_of_a_restart_runs_nothing_twice(folder: Path) -> None:
    [(_, _, code)] = RECIPES["Resume after a kill"]
    shown = "\nprint([result.metrics['timestamp'] for result in results])\n"
    assert run(folder, code + shown) == run(folder, code + shown)
