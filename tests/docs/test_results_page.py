"""The code in docs/results.md runs as it is, from the first block to the last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import tune
from tests.rig.script import LONGEST_S

PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.mark.process
def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(code for kind, code in BLOCKS if kind == "python"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "HOME": str(tmp_path), "PATH": path}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LONGEST_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    out = run(sys.executable, "page.py")
    grid = tune.load(tmp_path / "results" / "digits")
    assert (tmp_path / "best-model" / "model.txt").exists()
    lines = out.splitlines()
    assert [str(grid.uri), str(grid.best.uri)] == lines[-3:-1]
    assert "config/rate" in out
    commands = [code for kind, code in BLOCKS if kind == "sh"]
    assert "digits" in run("bash", "-e", "-c", commands[0])
    assert "config/rate" in (tmp_path / "digits.csv").read_text()
