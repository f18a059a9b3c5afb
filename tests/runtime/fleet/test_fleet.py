"""Workers on the nodes of a fleet: the contract of launchers, and the ends of nodes."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator

import pytest

from holdfast.runtime.engines.agent_process import Job
from holdfast.runtime.engines.command_engine import LocalEngine
from holdfast.runtime.engines.supplied import Times
from holdfast.runtime.errors import NoNodes
from holdfast.runtime.fleet.facts import FleetSettings, host_name
from holdfast.runtime.fleet.fleet import Fleet
from tests.rig.free_tasks import free_tasks
from tests.rig.nodes.fleets import Agents, FleetLog, open_fleet
from tests.rig.workers.launcher_contract import OBEYING, LauncherContract, ask, start
from tests.rig.workers.processes import no_process_is_left, wait_for_end

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture(params=[False, True], ids=["tls", "pipe"])
async def launcher(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    with no_process_is_left():
        engine = LocalEngine(agents=1, over_pipe=request.param)
        fleet = Fleet(engine, FleetLog(), tasks=free_tasks(), settings=FleetSettings(grace_s=2.0))
        yield fleet
        await fleet.close()


class TestFleet(LauncherContract):
    """The contract, over TLS and over a pipe."""


async def test_a_node_that_is_killed_leaves_before_its_workers_exit() -> None:
    async with open_fleet(Agents(os.environ)) as (fleet, log, engine):
        await fleet.open(OBEYING, b"")
        worker, heard = start(fleet)
        pid = (await ask(worker, heard, "tell"))["pid"]
        worker.confirm(pid)
        assert worker.pid == pid
        (name,) = log.nodes
        order = log.events
        log.on_exit(heard)
        engine.agent.kill()
        cause = await heard.exit()
        assert cause.startswith(f"was lost with the node {name} (was killed by signal 9")
        why = cause.partition(" (")[2].removesuffix(")")
        assert order[1:] == [["left", name, why], ["exit"]]
        wait_for_end(pid)


async def test_a_node_without_room_on_its_disk_is_refused() -> None:
    settings = FleetSettings(grace_s=2.0, least_free_bytes=1 << 60)
    async with open_fleet(Agents(os.environ), settings) as (fleet, _, _):
        with pytest.raises(NoNodes, match="DiskFull: there is no room"):
            await fleet.open(OBEYING, b"")


async def test_a_node_that_is_vacated_announces_its_end_and_leaves() -> None:
    settings = FleetSettings(grace_s=0.5)
    async with open_fleet(Agents(os.environ), settings) as (fleet, log, _):
        await fleet.open(OBEYING, b"")
        (name,) = log.nodes
        for _ in range(2):
            fleet.vacate(name, "its disk is full")
        cause = "its announced time was over (its disk is full)"
        assert await log.until("left") == ["left", name, cause]
        assert [event[0] for event in log.events] == ["joined", "leaving", "left"]


class CountedEngine(LocalEngine):
    """Two agents, which are replaced without a rest; counts those that were started."""

    def __init__(self) -> None:
        super().__init__(agents=2, over_pipe=True, times=Times(end_s=0.5, pause_s=0.0))
        self.started = 0

    def job_at(self, place: str) -> Job:
        self.started += 1
        return super().job_at(place)


async def test_no_agent_is_replaced_while_others_are_still_ending() -> None:
    # An agent that a busy machine delays may be lost, and replaced, before both have joined.
    settings = FleetSettings(heartbeat_s=30.0, lease_s=58.0, grace_s=0.5, late_s=0.5)
    async with open_fleet(CountedEngine(), settings) as (fleet, log, engine):
        await fleet.open(OBEYING, b"")
        name = host_name(socket.gethostname())
        for node in (name, f"{name}-2"):
            await log.until("joined", node)
        before = engine.started, len(log.nodes)
        os.kill(log.nodes[name].pid, signal.SIGSTOP)
        await fleet.close()
        assert (engine.started, len(log.nodes)) == before
