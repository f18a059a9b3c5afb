"""A user's script whose trials run on the workers of a real Dask cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.dask.cluster import Cluster
from tests.rig.bench import Bench, epochs_of, results, workbench

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


def test_a_trial_whose_worker_is_killed_runs_again_on_another(
    bench: Bench, empty_cluster: Cluster
) -> None:
    script, gate = bench.held_in(3, checkpoint_every=1, max_failures=1)
    empty_cluster.signal("w1", signal.SIGKILL)
    said = script.said("is lost")
    gate.open()
    script.succeeds()
    assert "the Dask worker w1 (tls://127.0.0.2:" in said
    assert script.left() == []
    assert epochs_of(script) == [4, 4]
    assert [found["error"] for found in results(script)] == [None, None]
    assert bench.problems() == []
