"""A process group whose ranks are on several machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.bench import Bench, workbench
from tests.rig.nodes.machines import Machines
from tests.rig.nodes.ssh_runs import ssh_nodes
from tests.rig.nodes.training import TRAINING, check_numbers, rows_of, samples_of

pytestmark = [pytest.mark.process, pytest.mark.server]

# PyTorch takes half a minute to import on a busy machine.
PATIENCE_S = 180.0


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, TRAINING) as made:
        yield made


@pytest.fixture
def three(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three machines with two CPUs each. Each has what Docker leaves: a second network, with the
    same address on all of them, and the default route through it."""
    home = tmp_path_factory.mktemp("machines")
    with ssh_nodes(bench, home, 3, cpus_per_node=2, scratch="/tmp") as made:
        for machine in made.all:
            machine.run("ip", "link", "add", "docker0", "type", "bridge")
            machine.run("ip", "addr", "add", "172.17.0.1/16", "dev", "docker0")
            machine.run("ip", "link", "set", "docker0", "up")
            machine.run("ip", "route", "add", "default", "dev", "docker0")
        yield made
        made.wait_until_idle()


def test_ranks_on_three_machines_are_numbered_as_by_torchrun_and_train_one_model(
    bench: Bench, three: Machines
) -> None:
    script = bench.start(torch=True, workers=5, rows=30, batch=3, epochs=2)
    script.succeeds(PATIENCE_S)
    assert script.left() == []
    nodes = check_numbers(bench.notes())
    addresses = {machine.name: machine.address for machine in three.all}
    assert sorted(nodes.count(name) for name in addresses) == [1, 2, 2]
    assert all(place["host"] == place["node"] for place in bench.notes())
    for place in bench.notes():
        local, ours, node = place["local"]
        assert place["variables"] == {
            "RANK": str(place["rank"]),
            "WORLD_SIZE": "5",
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(ours),
            "GROUP_RANK": str(node),
            "GROUP_WORLD_SIZE": "3",
            "ROLE_RANK": str(place["rank"]),
            "ROLE_WORLD_SIZE": "5",
            "MASTER_ADDR": addresses[nodes[0]],
            "GLOO_SOCKET_IFNAME": "eth0",
        }
    rows = rows_of(bench.root)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        ranks = row["ranks"].values()
        assert [of_rank["sum"] for of_rank in ranks] == [15] * 5
        assert [of_rank["model"] for of_rank in ranks] == [row["model"]] * 5
    assert len({json.dumps(row["model"]) for row in rows}) == 4
    assert samples_of(rows) == {epoch: list(range(30)) for epoch in (0, 1)}
    assert bench.problems() == []
