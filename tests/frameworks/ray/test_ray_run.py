"""A user's script whose trials run on the nodes of a real Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.ray.cluster import Cluster
from tests.rig.bench import Bench, epochs_of, results, workbench
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent.parent / "cluster_script.py"


@pytest.fixture
def bench(own_cluster: Cluster, tmp_path: Path) -> Iterator[Bench]:
    """Ray's client connects from a machine of the cluster: a URI has no form for it."""
    with workbench(tmp_path, SCRIPT) as made:
        where = "ray://?nodes=2&cpus_per_node=1&controller_address=127.0.0.1"
        made.environ |= {"HOLDFAST_CLUSTER": where}
        made.environ |= {"RAY_ADDRESS": own_cluster.address, **own_cluster.security}
        yield made


@pytest.mark.server
def test_a_trial_whose_node_is_killed_resumes_on_another(
    bench: Bench, own_cluster: Cluster, moto: S3Server, proxy: Proxy
) -> None:
    bucket = Bucket(moto, bench.folder.name, proxy)
    bench.use(bucket, machine="first")
    node = own_cluster.add()
    script, gate = bench.held_in(3, max_failures=1)
    # A checkpoint that is not in storage yet would be lost with its node.
    bucket.wait_for_committed(4)
    own_cluster.kill(node)
    script.said("is lost")
    gate.open()
    script.succeeds()
    assert script.left() == []
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    again = [note for note in bench.notes() if note["what"] == "ran" and note["attempt"] == 2]
    assert [note["iteration"] for note in again] == [3, 4]
    assert bench.problems(bucket.download(bench.folder / "bucket")) == []
