"""Agents of this machine, over their stdin and stdout and over a port: the contract, and GPUs."""

from collections.abc import Iterator, Sequence

import pytest

from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.engines.local import LocalEngine
from holdfast.runtime.engines.seated import Times
from tests.rig.engine_contract import (
    CLOSE_S,
    EngineContract,
    EngineRig,
    contract_marks,
    kind_of,
    running,
)
from tests.rig.engine_host import AGENT
from tests.rig.processes import PATIENCE_S, no_process_is_left

pytestmark = contract_marks


class LocalRig:
    address = "127.0.0.1"

    def __init__(self, over_pipe: bool, **more: object) -> None:
        self._over_pipe = over_pipe
        self._more = more

    def engine(
        self, *, python: Sequence[str] = (), answer_s: float = PATIENCE_S, end_s: float = CLOSE_S
    ) -> Engine:
        return LocalEngine(
            over_pipe=self._over_pipe,
            python=python,
            module=AGENT,
            times=Times(answer_s=answer_s, end_s=end_s, rest_s=0.05),
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
