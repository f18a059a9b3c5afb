"""A user's script whose trials run on the workers of a real Dask cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.dask.cluster import Cluster
from tests.rig.bench import Bench, epochs_of, results, workbench
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent.parent / "cluster_script.py"


@pytest.fixture
def bench(empty_cluster: Cluster, tmp_path: Path) -> Iterator[Bench]:
    for number in (1, 2):
        empty_cluster.add_worker(f"w{number}", f"127.0.0.{number + 1}")
    with workbench(tmp_path, SCRIPT) as made:
        host = empty_cluster.address.removeprefix("tls://")
        where = f"dask://{host}?nodes=2&cpus_per_node=1&controller_address=127.0.0.1"
        made.environ |= {"HOLDFAST_CLUSTER": where, **empty_cluster.client_environ()}
        yield made


@pytest.mark.smoke
def test_trials_run_on_workers(bench: Bench) -> None:
    script = bench.start(samples=2, checkpoint_every=2).succeeds()
    assert script.left() == []
    assert epochs_of(script) == [4, 4, 4, 4]
    assert bench.problems() == []


@pytest.mark.server
def test_a_trial_whose_worker_is_killed_resumes_on_another(
    bench: Bench, empty_cluster: Cluster, moto: S3Server, proxy: Proxy
) -> None:
    bucket = Bucket(moto, bench.folder.name, proxy)
    bench.use(bucket, machine="first")
    script, gate = bench.held_in(3, max_failures=1)
    # A checkpoint that is not in storage yet would be lost with its node.
    bucket.wait_for_committed(4)
    empty_cluster.signal("w1", signal.SIGKILL)
    said = script.said("is lost")
    gate.open()
    script.succeeds()
    assert "the Dask worker w1 (tls://127.0.0.2:" in said
    assert script.left() == []
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    assert [note["iteration"] for note in bench.notes() if is_second(note)] == [3, 4]
    assert bench.problems(bucket.download(bench.folder / "bucket")) == []


def is_second(note: dict[str, Any]) -> bool:
    """Whether a second attempt ran an epoch."""
    return note["what"] == "ran" and note["attempt"] == 2
