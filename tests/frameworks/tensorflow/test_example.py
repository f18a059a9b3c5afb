"""The example, run as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).parents[3] / "examples" / "tensorflow" / "ring.py"


def run(storage: Path, epochs: int) -> str:
    command = [sys.executable, str(EXAMPLE), "--storage", str(storage), "--epochs", str(epochs)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_example_trains_its_epochs_and_started_again_has_them(tmp_path: Path) -> None:
    assert "2 epochs, loss 0." in run(tmp_path, 2)
    again = run(tmp_path, 2)
    assert "Resuming ring ..." in again
    assert "2 epochs, loss 0." in again
