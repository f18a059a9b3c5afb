"""The examples of the simulator run and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_schedulers_are_compared_in_virtual_time() -> None:
    told = run("simulate.py", "--trials", "20")
    for name in ("FIFOScheduler", "ASHAScheduler", "HyperBandScheduler"):
        assert f"{name}\n20 trials on 25 workers: " in told


def test_a_run_is_replayed_under_asha(tmp_path: Path) -> None:
    started = "replay.py", "--storage", str(tmp_path), "--name", "run", "--samples", "4"
    told = run(*started)
    table = [line for line in told.splitlines() if line]
    assert table[0].split() == ["as", "it", "was", "under", "ASHAScheduler"]
    assert table[1].split() == ["workers", "2", "4"]
    assert table[5].startswith("best loss")
    assert run(*started) == told  # the run that there is
