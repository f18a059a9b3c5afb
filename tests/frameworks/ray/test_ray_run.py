"""A user's script whose trials run on the nodes of a real Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.ray.cluster import Cluster
from tests.rig.bench import Bench, epochs_of, results, workbench

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


def test_a_trial_whose_node_is_killed_runs_again_on_another(
    bench: Bench, own_cluster: Cluster
) -> None:
    node = own_cluster.add()
    script, gate = bench.held_in(3, checkpoint_every=1, max_failures=1)
    own_cluster.kill(node)
    said = script.said("is lost")
    gate.open()
    script.succeeds()
    assert script.left() == []
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    assert bench.problems() == []
    assert said
