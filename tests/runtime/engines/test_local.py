"""Agents of this machine, over their stdin and stdout and over a port: the contract, and GPUs."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.runtime.engines.command_engine import LocalEngine
from holdfast.runtime.engines.engine import Engine
from tests.rig import ROOT
from tests.rig.nodes.engine_contract import (
    EngineContract,
    EngineRig,
    contract_marks,
    kind_of,
    refusal,
    running,
    times_of,
)
from tests.rig.nodes.engine_host import AGENT
from tests.rig.workers.processes import PATIENCE_S, no_process_is_left

pytestmark = contract_marks


class LocalRig:
    address = "127.0.0.1"

    def __init__(self, over_pipe: bool, **more: object) -> None:
        self._over_pipe = over_pipe
        self._more = more

    def engine(self, *, python: Sequence[str] = (), answer_s: float = PATIENCE_S) -> Engine:
        return LocalEngine(
            over_pipe=self._over_pipe,
            python=python,
            module=AGENT,
            times=times_of(answer_s),
            **self._more,  # type: ignore[arg-type]
        )


@pytest.fixture(params=[False, True], ids=["port", "pipe"])
def rig(request: pytest.FixtureRequest) -> Iterator[EngineRig]:
    with no_process_is_left():
        yield LocalRig(over_pipe=request.param)


class TestLocal(EngineContract):
    """The contract, for both ways to talk."""


async def test_agents_share_the_gpus_of_this_machine() -> None:
    rig = LocalRig(over_pipe=True, gpu_names=["3", "4", "GPU-5", "6"], resources={"GPU": 2.0})
    engine = rig.engine()
    assert [kind.resources for kind in engine.offer().kinds] == [{"GPU": 2.0}]
    async with running(rig, engine) as host:
        engine.want(kind_of(engine), 2)
        shown = {link.facts["cuda"] for link in await host.agents(2)}
    assert shown == {"3,4", "GPU-5,6"}


async def test_nodes_of_an_unknown_kind_are_refused() -> None:
    rig = LocalRig(over_pipe=True)
    engine = rig.engine()
    async with running(rig, engine):
        with pytest.raises(ValueError, match="no nodes of the kind 'gpu'"):
            engine.want("gpu", 1)


async def test_a_host_that_cannot_invite_is_refused_with_its_reason() -> None:
    engine = LocalRig(over_pipe=False).engine()
    async with running(LocalRig(over_pipe=False), engine) as host:
        host.cannot_invite = "the port is taken"
        engine.want(kind_of(engine), 2)
        assert await host.refusal_of() == "the port is taken"


async def test_an_agent_that_was_due_does_not_start_after_a_kill() -> None:
    rig = LocalRig(over_pipe=True)
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want(kind_of(engine), 1)
        engine.kill()
        for _ in range(3):  # turns of the loop: it would start in the first
            await asyncio.sleep(0)
        assert not engine.processes()
        assert not host.invited


async def test_an_agent_that_the_controller_refuses_is_no_use(tmp_path: Path) -> None:
    """It has begun, so the engine learns from its status that it does not work."""
    (tmp_path / "refused.py").write_text("import sys\nsys.stdin.readline()\nsys.exit('no, 3.9')")
    engine = LocalEngine(
        module="refused", environ={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    )
    text = await refusal(LocalRig(over_pipe=False), engine)
    assert "agent 1" in text
    assert "agent 2" in text
    assert "no, 3.9" in text
