"""Agents that begin and then say nothing, or no frame."""

import os
from pathlib import Path

import pytest

from holdfast.runtime.engines.command_engine import LocalEngine
from holdfast.runtime.errors import NoNodes
from holdfast.runtime.fleet.facts import FleetSettings
from holdfast.runtime.fleet.fleet import Fleet
from tests.rig import ROOT
from tests.rig.free_tasks import free_tasks
from tests.rig.nodes.fleets import FleetLog
from tests.rig.workers.launcher_contract import OBEYING
from tests.rig.workers.processes import PATIENCE_S, no_process_is_left

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.mark.parametrize(
    ("code", "hello_s", "why"),
    [
        ("import sys; sys.stdin.read()", 0.5, "it did not introduce itself within 0.5 s"),
        ("while True: print('x' * 10_000)", PATIENCE_S, "no agent answered, but: b'xxxx"),
        ("import sys; sys.exit('no glibc')", PATIENCE_S, "no glibc"),
    ],
    ids=["silent", "noisy", "gone"],
)
async def test_a_fleet_of_agents_that_never_introduce_themselves_is_an_error(
    tmp_path: Path, code: str, hello_s: float, why: str
) -> None:
    (tmp_path / "hanging.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    engine = LocalEngine(
        agents=1, over_pipe=True, module="hanging", environ={**os.environ, "PYTHONPATH": path}
    )
    with no_process_is_left():
        settings = FleetSettings(grace_s=1.0, pipe_hello_s=hello_s)
        fleet = Fleet(engine, FleetLog(), tasks=free_tasks(), settings=settings)
        with pytest.raises(NoNodes) as raised:
            await fleet.open(OBEYING, b"")
        assert why in str(raised.value)
        await fleet.close()
