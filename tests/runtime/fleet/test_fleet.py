"""Workers on the nodes of a fleet: the contract of launchers, and the ends of nodes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from holdfast.runtime.engines.local import LocalEngine
from holdfast.runtime.fleet.fleet import Fleet
from holdfast.runtime.fleet.settings import FleetSettings
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
