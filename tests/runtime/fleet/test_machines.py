"""A fleet over ssh on real machines: where workers run, and what both sides do at a loss."""

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.runtime.engines.command_engine import Times
from holdfast.runtime.engines.ssh import SSHEngine
from holdfast.runtime.fleet.facts import FleetSettings
from holdfast.runtime.fleet.fleet import Fleet
from tests.rig import ROOT
from tests.rig.free_tasks import free_tasks
from tests.rig.nodes.fleets import FleetLog
from tests.rig.nodes.machines import Machine, Machines
from tests.rig.workers.launcher_contract import OBEYING, ask
from tests.rig.workers.processes import Heard, wait_for_end

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.server]

PYTHON = ("env", f"PYTHONPATH={ROOT}", sys.executable)
SCRATCH = "holdfast-nodes-0"
USUAL = FleetSettings(grace_s=5.0)
QUICK = FleetSettings(grace_s=5.0, beat_s=0.5, lease_s=1.5, margin_s=0.5)


@pytest.fixture
def machines(three_machines: Machines) -> Iterator[Machines]:
    yield three_machines
    for machine in three_machines.all:
        machine.heal()
    three_machines.wait_until_idle()
    for machine in three_machines.all:
        assert not (machine.disk / SCRATCH).exists(), "a scratch folder is left"


@asynccontextmanager
async def fleet_on(
    machines: Machines, hosts: Sequence[str], settings: FleetSettings
) -> AsyncIterator[tuple[Fleet, FleetLog]]:
    """A fleet whose hosts have all joined."""
    alive = ["-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=2"]
    times = Times(rest_s=0.05)
    engine = SSHEngine(hosts, python=PYTHON, ssh=[*machines.ssh, *alive], times=times)
    log = FleetLog()
    fleet = Fleet(engine, log, tasks=free_tasks(), settings=settings)
    try:
        await fleet.open(OBEYING, b"shared")
        for host in hosts:
            await log.until("joined", host)
        yield fleet, log
    finally:
        assert await fleet.close() == ""


async def worker_on(fleet: Fleet, node: str) -> tuple[Heard, dict[str, Any]]:
    """A worker on this node, and what it says of itself."""
    heard = Heard()
    worker = fleet.launch(f"worker of {node}", heard, node)
    return heard, await ask(worker, heard, "tell")


async def test_workers_run_on_the_machines_and_leave_nothing(machines: Machines) -> None:
    async with fleet_on(machines, ["node1", "node2"], USUAL) as (fleet, log):
        for machine in machines.all[:2]:
            facts = log.nodes[machine.name]
            assert (facts.hostname, facts.address) == (machine.name, machine.address)
            heard = Heard()
            worker = fleet.launch("worker", heard, machine.name)
            assert await ask(worker, heard, "call", "socket:gethostname") == machine.name
            assert await ask(worker, heard, "echo", b"x" * 1_000_000) == b"x" * 1_000_000
            assert await ask(worker, heard, "payload") == b"shared"
            assert (await ask(worker, heard, "tell"))["pid"] in machine.pids()
            assert (machine.disk / SCRATCH).is_dir()


async def test_the_loss_of_a_machine_leaves_the_others_alone_and_it_comes_back(
    machines: Machines,
) -> None:
    async with fleet_on(machines, ["node1", "node2"], USUAL) as (fleet, log):
        lost, _ = await worker_on(fleet, "node1")
        other = Heard()
        kept = fleet.launch("kept", other, "node2")
        machines[0].kill_all()
        cause = await lost.exit()
        assert "was lost with the node node1" in cause
        (_, name, why) = await log.until("left")
        assert name == "node1"
        assert "ssh" in why, "the engine adds the cause"
        assert await ask(kept, other, "echo", 1) == 1
        machines[0].boot()
        await log.until("joined", "node1-2")
        _, facts = await worker_on(fleet, "node1-2")
        assert facts["pid"] in machines[0].pids()


@pytest.mark.parametrize("how", [Machine.drop, Machine.unplug], ids=["drop", "unplug"])
async def test_both_sides_of_a_partition_give_up(machines: Machines, how: Any) -> None:
    async with fleet_on(machines, ["node1", "node2"], QUICK) as (fleet, log):
        lost, facts = await worker_on(fleet, "node1")
        other = Heard()
        kept = fleet.launch("kept", other, "node2")
        how(machines[0])
        assert "not heard for" in await lost.exit()
        # No word can have reached the agent.
        wait_for_end(facts["pid"])
        wait_for_end(log.nodes["node1"].pid)
        assert await ask(kept, other, "echo", 1) == 1
        machines[0].heal()
        await log.until("joined", "node1-2")
