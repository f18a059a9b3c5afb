"""A real Ray cluster with TLS on loopback."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.ray.cluster import Cluster
from tests.rig.workers.processes import Lifeline


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes, for tests that leave the cluster as it was. The folder has a short name, because
    Ray makes sockets in it."""
    with (
        tempfile.TemporaryDirectory(prefix="hfr-", dir="/tmp") as folder,
        Cluster(Path(folder)) as cluster,
    ):
        cluster.add()
        yield cluster


@pytest.fixture
def lifeline() -> Iterator[Lifeline]:
    """Ray's own processes are children of this one, and come and go: so nothing is asserted."""
    line = Lifeline()
    yield line
    line.close()


@pytest.fixture
def own_cluster(lifeline: Lifeline) -> Iterator[Cluster]:
    """A head node; a test adds others and kills them."""
    with (
        tempfile.TemporaryDirectory(prefix="hfr-", dir="/tmp") as folder,
        Cluster(Path(folder)) as cluster,
    ):
        yield cluster
