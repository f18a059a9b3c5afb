"""A real Dask cluster with TLS on loopback: a scheduler, and a worker on each of two addresses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.dask.cluster import Cluster
from tests.rig.workers.processes import Lifeline, no_process_is_left

# LocalCluster would start it in the middle of a test, and it lives as long as this process.
resource_tracker.ensure_running()


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers, for tests that leave the cluster as it was."""
    with Cluster(tmp_path_factory.mktemp("dask")) as cluster:
        cluster.add_worker("w1", "127.0.0.2")
        cluster.add_worker("w2", "127.0.0.3")
        yield cluster


@pytest.fixture
def lifeline() -> Iterator[Lifeline]:
    line = Lifeline()
    os.set_inheritable(line.fd, True)
    with no_process_is_left():
        yield line
    line.close()


@pytest.fixture
def empty_cluster(lifeline: Lifeline, tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler, to whose cluster a test adds workers."""
    with Cluster(tmp_path) as cluster:
        yield cluster
