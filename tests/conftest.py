"""What tests of several folders stand on: a user's script on its own machine, and an S3 server."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.rig.bench import Bench, workbench
from tests.rig.gcs_server import GcsServer, gcs_server
from tests.rig.proxy import Proxy
from tests.rig.s3_server import S3Server, make_bucket, moto_server

# How long an example takes says something of the machine, and nothing of the code.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")

# A shell has what it starts in the background ignore SIGINT, nohup does so with SIGHUP, and all
# children of a test would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Seconds that a test takes which stands on this fixture, about; any other takes a tenth.
_SECONDS = {
    "moto": 5.0,
    "gcs": 5.0,
    "buckets": 5.0,
    "stage": 2.5,
    "bench": 2.5,
    "run_script": 2.5,
    "trainer": 2.0,
    "fit": 1.0,
}

USER_SCRIPT = Path(__file__).parent / "restore" / "user_script.py"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A user's script on a machine of its own, killed and restored as a test likes."""
    with workbench(tmp_path, USER_SCRIPT) as made:
        yield made


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """A moto server with a bucket named `bucket`."""
    with moto_server() as server:
        make_bucket(server, "bucket")
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """A fake Google Cloud Storage with a bucket named `bucket`."""
    with gcs_server() as server:
        yield server


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[Proxy]:
    made = Proxy(moto.endpoint)
    yield made
    made.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: a file is run by one of several processes, and the last one to be
    begun would keep the others waiting for it."""
    seconds: defaultdict[Path, float] = defaultdict(float)
    for item in items:
        names = getattr(item, "fixturenames", ())
        seconds[item.path] += max((_SECONDS.get(name, 0.1) for name in names), default=0.1)
    items.sort(key=lambda item: -seconds[item.path])
