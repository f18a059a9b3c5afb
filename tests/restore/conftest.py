"""A real S3 server that serves a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.s3_server import S3Server, rclone_server


@pytest.fixture(scope="session")
def rclone_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rclone")
    (folder / "bucket").mkdir()
    return folder


@pytest.fixture(scope="session")
def rclone(rclone_folder: Path) -> Iterator[S3Server]:
    with rclone_server(rclone_folder) as server:
        yield server
