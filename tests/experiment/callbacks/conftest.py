"""Fixtures for tests of callbacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiment.callbacks.seen import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)
