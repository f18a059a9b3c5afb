"""The example, run as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).parents[3] / "examples" / "xgboost" / "rounds.py"


def run(storage: Path, rounds: int) -> str:
    command = [sys.executable, str(EXAMPLE), "--storage", str(storage), "--rounds", str(rounds)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_example_boosts_its_rounds_and_started_again_has_them(tmp_path: Path) -> None:
    assert "6 rounds, loss 0." in run(tmp_path, 6)
    again = run(tmp_path, 6)
    assert "Going on with rounds ..." in again
    assert "6 rounds, loss 0." in again
