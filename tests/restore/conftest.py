"""A user's script on a machine of its own, killed and restored as a test likes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.bench import Bench, workbench
from holdfast.testing.proxy import Proxy
from holdfast.testing.s3_server import S3Server, make_bucket, moto_server, rclone_server

USER_SCRIPT = Path(__file__).parents[1] / "restore" / "user_script.py"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, USER_SCRIPT) as made:
        yield made


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """A moto server with a bucket named `bucket`."""
    with moto_server() as server:
        make_bucket(server, "bucket")
        yield server


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[Proxy]:
    made = Proxy(moto.endpoint)
    yield made
    made.close()


@pytest.fixture(scope="session")
def rclone_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rclone")
    (folder / "bucket").mkdir()
    return folder


@pytest.fixture(scope="session")
def rclone(rclone_folder: Path) -> Iterator[S3Server]:
    with rclone_server(rclone_folder) as server:
        yield server
