"""Fixtures for tests of whole experiments on the disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in which fsync takes no time, because each repair makes a dozen."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="holdfast-") as folder:
        yield Path(folder)
