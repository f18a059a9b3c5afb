"""Fixtures for tests of the doctor on one machine; others have a run with storage instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.rig.runs.patient import healthy


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("patient") / "run"
    healthy(root)
    return root


@pytest.fixture
def root(template: Path, in_memory: Path) -> Path:
    return Path(shutil.copytree(template, in_memory / "run", symlinks=True))
