"""Engines over a cluster's client: the contract, with a client that runs agents on this machine,
and clients that fail."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence

import pytest

from holdfast.runtime.engines.client_engine import ClientEngine, ClusterClient, agent_options
from holdfast.runtime.engines.engine import EngineFailed, Invitation
from tests.rig.nodes.engine_contract import (
    CLOSE_S,
    EngineContract,
    EngineRig,
    contract_marks,
    running,
    times_of,
)
from tests.rig.nodes.engine_host import AGENT, fake_host
from tests.rig.workers.processes import PATIENCE_S, Lifeline

pytestmark = contract_marks

TWO = [["one", "host-1", "the member one"], ["two", "host-2", "the member two"]]


class ClientRig:
    address = "127.0.0.1"

    def engine(
        self,
        *,
        python: Sequence[str] = (),
        answer_s: float = PATIENCE_S,
        entry: str = "tests.rig.nodes.fake_cluster:serve",
        **options: object,
    ) -> ClientEngine:
        times = times_of(answer_s)
        agent = agent_options(python, AGENT, {"CUDA_VISIBLE_DEVICES": "7"}, times)
        client = ClusterClient(
            kind="fake",
            title="the cluster",
            members="members",
            entry=entry,
            options={
                "agent": agent,
                "members": TWO,
                **options,
            },
            keeps_agents=False,
            times=times,
        )
        return ClientEngine(client, environ=os.environ)


@pytest.fixture
def rig(lifeline: Lifeline) -> EngineRig:
    return ClientRig()


class TestClient(EngineContract):
    """The contract."""


async def test_a_client_that_refuses_is_an_error_with_its_words(lifeline: Lifeline) -> None:
    engine = ClientRig().engine(fault="there is no cluster here")
    async with fake_host() as host:
        with pytest.raises(EngineFailed, match="the cluster: there is no cluster here"):
            await engine.open(host)
    assert not engine.processes()


async def test_a_client_that_ends_its_process_is_an_error_with_its_last_lines(
    lifeline: Lifeline,
) -> None:
    engine = ClientRig().engine(fault=3)
    async with fake_host() as host:
        with pytest.raises(EngineFailed, match="Its last lines: the cluster's library has someth"):
            await engine.open(host)


async def test_a_client_that_cannot_be_imported_is_an_error(lifeline: Lifeline) -> None:
    engine = ClientRig().engine(entry="tests.rig.no_such_cluster:serve")
    async with fake_host() as host:
        with pytest.raises(EngineFailed, match="the cluster: its client ended"):
            await engine.open(host)


async def test_a_client_that_is_killed_is_started_again(rig: EngineRig) -> None:
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want("fake", 1)
        (link,) = await host.agents(1)
        (client,) = engine.processes()
        os.kill(client.pid, signal.SIGKILL)
        await host.until(lambda: link.facts["ticket"] in host.causes)
        assert "the member one: its client ended" in host.causes[link.facts["ticket"]]
        (again,) = await host.agents(1)
        assert again.facts["ticket"] != link.facts["ticket"]


async def test_a_client_that_hangs_does_not_delay_the_end(rig: EngineRig) -> None:
    engine = rig.engine()
    async with fake_host(rig.address) as host:
        await engine.open(host)
        engine.want("fake", 1)
        (link,) = await host.agents(1)
        (client,) = engine.processes()
        os.kill(client.pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_S):
            warning = await engine.close(0.2)
        assert warning == (
            "the cluster: its client does not answer. Agents may still run: the member one"
        )
        assert host.causes.keys() == {link.facts["ticket"]}
    assert not engine.processes()


async def test_nodes_of_an_unknown_kind_are_refused(rig: EngineRig) -> None:
    engine = rig.engine()
    async with running(rig, engine):
        with pytest.raises(ValueError, match="no nodes of the kind 'gpu'"):
            engine.want("gpu", 1)


async def test_a_host_that_cannot_invite_says_why(lifeline: Lifeline) -> None:
    engine = ClientRig().engine()
    async with fake_host() as host:
        host.invite = no_port  # type: ignore[method-assign]
        await engine.open(host)
        engine.want("fake", 2)
        assert await host.refusal_of() == "no port can be opened"
        await engine.close(CLOSE_S)


def no_port(kind: str, *, over_pipe: bool) -> Invitation:
    raise EngineFailed("no port can be opened")


async def test_all_nodes_are_used_if_there_is_no_limit(rig: EngineRig) -> None:
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want("fake", 10_000)
        first, second = await host.agents(2)
        assert first.facts["cuda"] == second.facts["cuda"] == "7"
        await host.until(lambda: host.told[-1] == "")
