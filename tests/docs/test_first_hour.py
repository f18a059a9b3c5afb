"""The tutorial docs/first-hour.md works as it stands, from its first block to its last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "first-hour.md").read_text()
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE, re.M | re.S)
NAME = re.compile(r"# (\w+\.py)\n")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user's environment, in which `python` and `holdfast` are these."""
    programs = str(Path(sys.executable).parent)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "HOME": str(tmp_path), "PATH": path, "MPLBACKEND": "Agg"}


@pytest.mark.process
def test_every_step_works_after_the_steps_before_it(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    for language, code in BLOCKS:
        named = NAME.match(code)
        if language == "sh":
            command = ["bash", "-e", "-c", code]
        elif named is None:
            continue  # a line to change, with the name of a bucket or of a server
        else:
            (tmp_path / named[1]).write_text(code)
            if named[1] in ("digits.py", "early.py"):
                continue  # the next shell block runs it
            command = ["python", named[1]]
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=840
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "best-model" / "model.pkl").exists()
