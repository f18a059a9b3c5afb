"""The sweeps in examples/sweep run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "sweep"

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("file", "samples", "epochs"), [("sweep.yaml", "2", 30), ("shell.yaml", "2", 8)]
)
def test_a_sweep_of_the_examples_runs(
    tmp_path: Path, file: str, samples: str, epochs: int
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "holdfast", "run", str(FOLDER / file), "--json"),
            *("--samples", samples, "--storage", str(tmp_path / "out")),
        ],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["state"] == "finished"
    assert len(shown["trials"]) == int(samples)
    assert max(trial["iteration"] for trial in shown["trials"]) == epochs
    assert shown["best"]["metrics"]["loss"] < 25
