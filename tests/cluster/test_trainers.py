"""A training whose ranks are on several machines, and on nodes that come and go."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.rig import ROOT
from tests.rig.bench import Bench, workbench
from tests.rig.machines import Machines, machines, missing

pytestmark = [pytest.mark.process, pytest.mark.server]

SCRIPT = Path(__file__).parent / "train_script.py"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all machines see."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def three(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    if why := missing():
        pytest.skip(why)
    with machines(3, tmp_path_factory.mktemp("machines"), [shared]) as made:
        yield made


@pytest.fixture
def bench(shared: Path, three: Machines, tmp_path: Path) -> Iterator[Bench]:
    """Three machines with two CPUs each. None has a process at the end."""
    python = f"env PYTHONPATH={ROOT} {sys.executable}"
    query = {"cpus_per_node": 2, "python": python, "ssh": " ".join(three.ssh)}
    with workbench(shared / tmp_path.name, SCRIPT) as made:
        made.environ["HOLDFAST_CLUSTER"] = f"ssh://{','.join(three.names)}?{urlencode(query)}"
        yield made
    for machine in three.all:
        machine.wait_until_idle()


def rows_of(root: Path) -> list[dict[str, Any]]:
    """The rows of the training, without those that were rolled back."""
    (path,) = root.glob("*/result.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows_seen(rows: Sequence[Mapping[str, Any]]) -> dict[int, list[int]]:
    """What all ranks together got in each epoch."""
    seen: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows:
        for of_rank in row["ranks"].values():
            seen[row["epoch"]] += of_rank["rows"]
    return {epoch: sorted(found) for epoch, found in seen.items()}


def test_torch_ranks_on_three_machines_are_numbered_as_by_torchrun_and_train_one_model(
    bench: Bench, three: Machines
) -> None:
    for machine in three.all:  # what Docker leaves on each: the same address, and a route
        machine.run("ip", "link", "add", "docker0", "type", "bridge")
        machine.run("ip", "addr", "add", "172.17.0.1/16", "dev", "docker0")
        machine.run("ip", "link", "set", "docker0", "up")
        machine.run("ip", "route", "add", "default", "dev", "docker0")
    script = bench.start(torch=True, workers=5, rows=30, batch=3, epochs=2).succeeds()
    assert script.left() == []
    places = {place["rank"]: place for place in bench.notes()}
    hosts = [places[rank]["host"] for rank in range(5)]
    addresses = {machine.name: machine.address for machine in three.all}
    assert sorted(hosts.count(name) for name in addresses) == [1, 2, 2]
    for rank, place in places.items():
        host = place["host"]
        local, ours, node = hosts[:rank].count(host), hosts.count(host), sorted({*hosts[:rank]})
        place_rank = list(dict.fromkeys(hosts)).index(host)
        assert hosts[rank - local : rank - local + ours] == [host] * ours, "not consecutive"
        assert place["local"] == [local, ours, place_rank], node
        assert place["variables"] == {
            "RANK": str(rank),
            "WORLD_SIZE": "5",
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(ours),
            "GROUP_RANK": str(place_rank),
            "GROUP_WORLD_SIZE": "3",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": "5",
            "MASTER_ADDR": addresses[hosts[0]],
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        assert place["total"] == sum(range(100_000)) + 1000 * rank
    rows = rows_of(bench.root)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        ranks = row["ranks"].values()
        assert [of_rank["sum"] for of_rank in ranks] == [15] * 5
        assert all(of_rank["model"] == row["model"] for of_rank in ranks)
    assert len({json.dumps(row["model"]) for row in rows}) == 4
    assert rows_seen(rows) == {epoch: list(range(30)) for epoch in (0, 1)}
    assert bench.problems() == []


def test_a_training_shrinks_when_a_machine_is_lost_and_grows_when_it_is_back(
    bench: Bench, three: Machines
) -> None:
    whole = bench.gate("of-6")
    script = bench.start(
        workers=[2, 6], rows=72, batch=6, epochs=10_000, steps_of_all=3, step_s=0.05
    )
    held = int(script.wait_for("at 6 0").split()[-1])
    smaller = bench.gate("of-4")
    lost = three[0]
    lost.kill_all()
    resumed = int(script.wait_for("at 4 0").split()[-1])
    assert resumed == held
    lost.boot()
    smaller.open()
    whole.open()
    script.succeeds()
    assert script.left() == []
    rows = rows_of(bench.root)
    sizes = [len(row["ranks"]) for row in rows]
    assert sizes[-3:] == [6, 6, 6]
    assert sizes[resumed - 1] == 4
    seen = rows_seen(rows)
    last = rows[-1]["epoch"]
    assert all(found == list(range(72)) for epoch, found in seen.items() if epoch < last)
    for place in bench.notes():
        kept = [len(rows[step - 1]["ranks"]) for step in [place["step"]] if step]
        assert len(place["files"]) in (kept or [0])
    assert bench.problems() == []
