"""With `nodes=(least, most)` the cluster grows with the queue, and gives back idle nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from holdfast.cli import main
from tests.rig.bench import Bench
from tests.rig.nodes.slurm import SlurmCluster, wait_until
from tests.rig.nodes.slurm_rigs import jobs_of
from tests.rig.nodes.ssh_runs import ssh_nodes

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]

SCRIPT = Path(__file__).parent / "waves_script.py"
# Without this a node is given back after a minute.
IDLE_S = 0.3
TERMS = {"cpus_per_node": 1, "idle_s": IDLE_S}


@pytest.fixture
def local(bench: Bench) -> None:
    bench.environ["HOLDFAST_CLUSTER"] = f"local://?{urlencode({'agents': '1-3', **TERMS})}"


@pytest.fixture
def ssh(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("machines")
    with ssh_nodes(bench, home, 3, nodes="1-3", idle_s=IDLE_S) as made:
        yield
        made.wait_until_idle()


@pytest.fixture
def slurm_jobs(bench: Bench, slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    settings = {"nodes": "1-3", "idle_s": IDLE_S, "options": "--exclusive"}
    with jobs_of(bench, slurm, **settings) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "engine",
    [
        "local",
        pytest.param("ssh", marks=pytest.mark.nightly),
        pytest.param("slurm_jobs", marks=pytest.mark.nightly),
    ],
)
def test_a_cluster_grows_and_gives_back_nodes_and_gets_them_again(
    bench: Bench, engine: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    request.getfixturevalue(engine)
    order = bench.folder / "order"
    gates = [bench.gate(f"{number}-1") for number in range(5)]
    last = bench.gate("0-2")
    script = bench.run(SCRIPT, str(bench.storage), str(order))
    for number in range(3):
        script.wait_for(f"at {number} 1")
    assert present(bench, capsys) == 3
    for gate in gates[1:3]:
        gate.open()
    script.said("was given back: it had no work")
    wait_until(lambda: present(bench, capsys) == 1)
    order.touch()
    gates[0].open()
    for number in (3, 4):
        script.wait_for(f"at {number} 1")
    assert present(bench, capsys) == 3
    for gate in [*gates, last]:
        gate.open()
    script.succeeds()
    assert "EPOCHS [2, 2, 2, 2, 2]" in script.stdout
    assert len(listed(bench, capsys)) == 5, "one that nothing waited for was started again"
    assert script.left() == []


def listed(bench: Bench, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    assert main(["nodes", str(bench.root), "--json"]) == 0
    nodes: list[Any] = json.loads(capsys.readouterr().out)["nodes"]
    return nodes


def present(bench: Bench, capsys: pytest.CaptureFixture[str]) -> int:
    """How many nodes are there now."""
    return sum(node["state"] == "here" for node in listed(bench, capsys))
