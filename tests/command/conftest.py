"""Experiments that the commands read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.runs.patient import healthy


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trials that have ended, one of them failed; and the same before the end."""
    place = tmp_path_factory.mktemp("store")
    healthy(place / "ended", metric="loss", mode="min")
    healthy(place / "cut", ended=False, metric="loss", mode="min")
    return place


@pytest.fixture
def store(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every command leaves it unchanged, byte by byte."""
    for name in ("RAY_STORAGE", "RAY_AIR_LOCAL_CACHE_DIR", "HOLDFAST_ROOT", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = Path(shutil.copytree(template, tmp_path / "store"))
    yield place
    assert not list(place.rglob("*.tmp*"))
