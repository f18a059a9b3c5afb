"""Real S3 servers for the whole session, and an event loop like the keeper's."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.location import Location
from holdfast.testing.s3_server import S3Server, make_bucket, moto_server, rclone_server


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """A moto server with a bucket named `bucket`."""
    with moto_server() as server:
        make_bucket(server, "bucket")
        yield server


@pytest.fixture(scope="session")
def rclone_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that rclone serves, with a bucket named `bucket` in it."""
    folder = tmp_path_factory.mktemp("rclone")
    (folder / "bucket").mkdir()
    return folder


@pytest.fixture(scope="session")
def rclone(rclone_folder: Path) -> Iterator[S3Server]:
    with rclone_server(rclone_folder) as server:
        yield server


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of the test's own, where copies of remote checkpoints go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def memory_location() -> Iterator[Location]:
    """A place in an fsspec memory filesystem that no other test sees."""
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    yield Location.resolve("memory://experiment/checkpoint", None, {})
    MemoryFileSystem.store.clear()
