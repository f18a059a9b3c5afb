"""Agents in a real Ray cluster with TLS: the contract of engines, and what Ray adds to it."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.runtime.engines.client_engine import RayEngine
from holdfast.runtime.engines.engine import Engine, EngineFailed
from tests.frameworks.ray.cluster import Cluster
from tests.frameworks.without_holdfast import without_holdfast
from tests.rig.nodes.engine_contract import (
    EngineContract,
    EngineRig,
    contract_marks,
    refusal,
    running,
    times_of,
)
from tests.rig.nodes.engine_host import AGENT, fake_host
from tests.rig.workers.processes import PATIENCE_S, Lifeline

pytestmark = contract_marks


class RayRig:
    address = "127.0.0.1"

    def __init__(self, cluster: Cluster, address: str = "") -> None:
        self._cluster = cluster
        self._address = address or cluster.address

    def engine(
        self, *, python: Sequence[str] = (), answer_s: float = PATIENCE_S, **more: object
    ) -> Engine:
        return RayEngine(
            self._address,
            environ=self._cluster.environ,
            python=python,
            module=AGENT,
            times=times_of(answer_s),
            **more,  # type: ignore[arg-type]
        )


@pytest.fixture
def rig(cluster: Cluster, lifeline: Lifeline) -> EngineRig:
    return RayRig(cluster)


class TestRay(EngineContract):
    """The contract."""


# -- the nodes ------------------------------------------------------------------------------------


async def test_a_killed_node_is_named_and_one_that_joins_is_used(own_cluster: Cluster) -> None:
    rig = RayRig(own_cluster)
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want("ray", 2)
        (first,) = await host.agents(1)
        await host.until(lambda: "1 more machine with Ray nodes" in host.told)
        node = await asyncio.to_thread(own_cluster.add)
        second = next(link for link in await host.agents(2) if link is not first)
        assert host.told[-1] == ""
        await asyncio.to_thread(own_cluster.kill, node)
        await host.until(lambda: second.facts["ticket"] in host.causes)
        cause = host.causes[second.facts["ticket"]]
        assert f"(127.0.0.2, {node[:8]})" in cause
        assert "Ray has lost its actor" in cause
        await host.until(lambda: "1 more machine with Ray nodes" in host.told[-1])


async def test_nodes_with_the_resources_are_used_until_they_are_drained(
    own_cluster: Cluster,
) -> None:
    rig = RayRig(own_cluster)
    resources = {"CPU": 1.0, "holdfast": 2.0}
    node = await asyncio.to_thread(own_cluster.add, {"holdfast": 2.0})
    engine = rig.engine(resources=resources)
    assert [kind.resources for kind in engine.offer().kinds] == [resources]
    async with running(rig, engine) as host:
        engine.want("ray", 2)
        (link,) = await host.agents(1)
        await asyncio.to_thread(own_cluster.drain, node)
        await host.until(lambda: bool(host.warned))
        ticket, seconds, why = host.warned[0]
        assert ticket == link.facts["ticket"]
        assert 0 < seconds <= 300
        assert why == "Ray drains the node"
        link.order("exit", 0)
        await host.until(lambda: ticket in host.causes)
        assert node[:8] in host.causes[ticket]
        assert len(host.invited) == 1


async def test_the_death_of_the_gcs_ends_no_process_of_ours(own_cluster: Cluster) -> None:
    rig = RayRig(own_cluster)
    engine = rig.engine()
    async with fake_host(rig.address) as host:
        await engine.open(host)
        engine.want("ray", 1)
        (link,) = await host.agents(1)
        (client,) = engine.processes()
        await asyncio.to_thread(own_cluster.kill_gcs)
        # Ray's client ends its process after a minute; this test does not wait so long.
        client.kill("the test is short")
        await host.until(lambda: link.facts["ticket"] in host.causes)
        await host.until(lambda: "Next attempt in" in host.told[-1])
        assert own_cluster.address in host.told[-1]
        began = time.monotonic()
        await engine.close(2.0)
        assert time.monotonic() - began < PATIENCE_S
    assert not engine.processes()


@pytest.mark.smoke
async def test_a_cluster_without_tls_is_used_if_it_is_allowed(lifeline: Lifeline) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="hfr-", dir="/tmp") as folder,
        Cluster(Path(folder), is_secure=False) as cluster,
    ):
        rig = RayRig(cluster)
        assert "insecure=True" in await refusal(rig, rig.engine())
        engine = rig.engine(insecure=True)
        async with running(rig, engine) as host:
            engine.want("ray", 1)
            await host.agents(1)


async def test_no_cluster_is_an_error_that_names_the_address(lifeline: Lifeline) -> None:
    engine = RayEngine("127.0.0.2:1", insecure=True)
    async with fake_host() as host:
        with pytest.raises(EngineFailed, match=r"Ray at 127\.0\.0\.2:1: no connection to 127"):
            await engine.open(host)
    assert not engine.processes()


async def test_a_cluster_is_reached_by_its_server_for_clients(lifeline: Lifeline) -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
    with (
        tempfile.TemporaryDirectory(prefix="hfr-", dir="/tmp") as folder,
        Cluster(Path(folder), client_port=port) as cluster,
    ):
        rig = RayRig(cluster, f"ray://127.0.0.2:{port}")
        engine = rig.engine()
        async with running(rig, engine) as host:
            engine.want("ray", 1)
            (link,) = await host.agents(1)
            link.order("exit", 5, "the", "disk", "is", "full")
            await host.until(lambda: link.facts["ticket"] in host.causes)
            assert "the disk is full" in host.causes[link.facts["ticket"]]


async def test_nodes_without_holdfast_are_named(lifeline: Lifeline) -> None:
    with tempfile.TemporaryDirectory(prefix="hfr-", dir="/tmp") as folder:
        cluster = Cluster(Path(folder))
        cluster.environ["PYTHONPATH"] = without_holdfast(Path(folder))
        with cluster:
            cluster.environ.pop("PYTHONPATH")
            rig = RayRig(cluster)
            text = await refusal(rig, rig.engine())
            assert "the nodes need the same version of holdfast as this script" in text
            assert f"(127.0.0.2, {cluster.head[:8]})" in text
