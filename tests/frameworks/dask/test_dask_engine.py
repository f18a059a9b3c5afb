"""Agents in a real Dask cluster with TLS: the contract of engines, and what Dask adds to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

from holdfast.runtime.engines.client_engine import DaskEngine
from holdfast.runtime.engines.engine import Engine, EngineFailed
from tests.frameworks.dask.cluster import Cluster
from tests.frameworks.without_holdfast import without_holdfast
from tests.rig.nodes.engine_contract import (
    CLOSE_S,
    EngineContract,
    EngineRig,
    contract_marks,
    running,
    times_of,
)
from tests.rig.nodes.engine_host import AGENT, fake_host
from tests.rig.workers.processes import PATIENCE_S, Lifeline, wait_for_end

pytestmark = contract_marks


class DaskRig:
    address = "127.0.0.1"

    def __init__(self, cluster: Cluster | LocalCluster | Client) -> None:
        is_ours = isinstance(cluster, Cluster)
        self._cluster = cluster.address if is_ours else cluster
        self._security = cluster.security if is_ours else None

    def engine(
        self, *, python: Sequence[str] = (), answer_s: float = PATIENCE_S, **more: object
    ) -> Engine:
        return DaskEngine(
            self._cluster,
            security=self._security,
            python=python,
            module=AGENT,
            times=times_of(answer_s),
            **more,  # type: ignore[arg-type]
        )


@pytest.fixture
def rig(cluster: Cluster, lifeline: Lifeline) -> EngineRig:
    return DaskRig(cluster)


class TestDask(EngineContract):
    """The contract."""


# -- the workers ----------------------------------------------------------------------------------


async def test_a_killed_worker_is_named_and_one_that_joins_is_used(empty_cluster: Cluster) -> None:
    rig = DaskRig(empty_cluster)
    empty_cluster.add_worker("w1", "127.0.0.2")
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want("dask", 2)
        (first,) = await host.agents(1)
        await host.until(lambda: "1 more machine with Dask workers" in host.told)
        second = empty_cluster.add_worker("w2", "127.0.0.3")
        await host.agents(2)
        assert host.told[-1] == ""
        empty_cluster.signal("w1", signal.SIGKILL)
        await host.until(lambda: first.facts["ticket"] in host.causes)
        wait_for_end(first.facts["pid"])
        cause = host.causes[first.facts["ticket"]]
        assert "the Dask worker w1 (tls://127.0.0.2:" in cause
        assert "left the Dask cluster: its connection ended" in cause
        empty_cluster.add_worker("w1-again", "127.0.0.2")
        await host.agents(2)
        assert second.startswith("tls://127.0.0.3")


async def test_workers_of_one_machine_get_one_agent(empty_cluster: Cluster) -> None:
    rig = DaskRig(empty_cluster)
    for name in ("w1", "w2"):
        empty_cluster.add_worker(name, "127.0.0.2")
    empty_cluster.add_worker("w3", "127.0.0.3")
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want("dask", 3)
        (first, second) = await host.agents(2)
        assert len(host.invited) == 2
        # Another worker of the machine takes over.
        labels = {name: name in host.told[-1] for name in ("w1", "w2")}
        assert not any(labels.values())
        os.kill(first.facts["pid"], signal.SIGKILL)
        await host.until(lambda: len(host.invited) == 3)
        await host.agents(2)
        assert second in host.alive


async def test_only_workers_with_the_resources_are_used(empty_cluster: Cluster) -> None:
    rig = DaskRig(empty_cluster)
    empty_cluster.add_worker("w1", "127.0.0.2")
    empty_cluster.add_worker("w2", "127.0.0.3", resources={"holdfast": 1})
    engine = rig.engine(resources={"holdfast": 1})
    async with running(rig, engine) as host:
        engine.want("dask", 1)
        (link,) = await host.agents(1)
        link.order("exit", 1)
        await host.until(lambda: bool(host.causes))
        assert "w2" in host.causes[link.facts["ticket"]]


async def test_workers_without_holdfast_are_named_and_log_no_secret(
    empty_cluster: Cluster, tmp_path: Path
) -> None:
    rig = DaskRig(empty_cluster)
    empty_cluster.environ["PYTHONPATH"] = without_holdfast(tmp_path)
    empty_cluster.add_worker("w1", "127.0.0.2")
    async with fake_host() as host:
        engine = rig.engine()
        await engine.open(host)
        engine.want("dask", 1)
        text = await host.refusal_of()
        await engine.close(CLOSE_S)
        assert "the Dask worker w1" in text
        assert "the workers need the same version of holdfast as this script" in text
        assert "holdfast-agent-" in empty_cluster.logs()
        assert not any(secret in empty_cluster.logs() for secret in host.invited.values())


async def test_a_worker_that_is_busy_is_waited_for(empty_cluster: Cluster, tmp_path: Path) -> None:
    rig = DaskRig(empty_cluster)
    address = empty_cluster.add_worker("w1", "127.0.0.2")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with Client(
        empty_cluster.address, security=empty_cluster.security, asynchronous=True
    ) as client:
        task = client.submit(gate.read_text)
        engine = rig.engine()
        async with running(rig, engine) as host:
            engine.want("dask", 1)
            text = f"the Dask worker w1 ({address}) has not started its agent yet"
            await host.until(lambda: text in host.told)
            await asyncio.to_thread(gate.write_text, "done")
            assert await task == "done"
            await host.agents(1)


async def test_a_worker_that_retires_says_so_before(empty_cluster: Cluster) -> None:
    rig = DaskRig(empty_cluster)
    address = empty_cluster.add_worker("w1", "127.0.0.2")
    engine = rig.engine()
    async with (
        Client(
            empty_cluster.address, security=empty_cluster.security, asynchronous=True
        ) as client,
        running(rig, engine) as host,
    ):
        engine.want("dask", 1)
        (link,) = await host.agents(1)
        await client.retire_workers([address])
        await host.until(lambda: bool(host.warned))
        ticket, seconds, why = host.warned[0]
        assert ticket == link.facts["ticket"]
        assert seconds > 0
        assert "retired" in why or "closes" in why
        link.close()
        await host.until(lambda: ticket in host.causes)


# -- the scheduler and its client -----------------------------------------------------------------


async def test_agents_live_on_when_the_client_is_killed(empty_cluster: Cluster) -> None:
    rig = DaskRig(empty_cluster)
    for number in (2, 3):
        empty_cluster.add_worker(f"w{number}", f"127.0.0.{number}")
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want("dask", 2)
        first, second = await host.agents(2)
        (client,) = engine.processes()
        client.kill("the test")
        await host.until(lambda: any("killed by holdfast: the test" in one for one in host.told))
        await host.until(lambda: host.told[-1] == "")
        assert host.alive == [first, second]
        # The next client hears of their ends.
        first.order("exit", 3)
        await host.until(lambda: first.facts["ticket"] in host.causes)
        engine.want("dask", 1)
        engine.give_back(second.facts["ticket"])
        second.close()
        await host.until(lambda: second.facts["ticket"] in host.causes)


async def test_a_scheduler_that_is_stopped_delays_no_end(empty_cluster: Cluster) -> None:
    rig = DaskRig(empty_cluster)
    empty_cluster.add_worker("w1", "127.0.0.2")
    engine = rig.engine()
    async with fake_host(rig.address) as host:
        await engine.open(host)
        engine.want("dask", 1)
        (link,) = await host.agents(1)
        empty_cluster.processes["scheduler"].send_signal(signal.SIGSTOP)
        link.close()
        began = time.monotonic()
        warning = await engine.close(1.0)
        assert time.monotonic() - began < PATIENCE_S
        assert "Agents may still run: the Dask worker w1" in warning
        assert host.causes.keys() == host.invited.keys()
        assert not engine.processes()
        wait_for_end(link.facts["pid"])


async def test_a_scheduler_that_is_gone_is_waited_for(empty_cluster: Cluster) -> None:
    rig = DaskRig(empty_cluster)
    empty_cluster.add_worker("w1", "127.0.0.2")
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want("dask", 1)
        (link,) = await host.agents(1)
        empty_cluster.signal("scheduler", signal.SIGKILL)
        await host.until(lambda: "Next attempt in" in host.told[-1])
        assert empty_cluster.address in host.told[-1]
        link.close()


async def test_a_cluster_without_tls_is_refused_unless_it_is_allowed(
    tmp_path: Path, lifeline: Lifeline
) -> None:
    with Cluster(tmp_path, protocol="tcp") as cluster:
        cluster.add_worker("w1", "127.0.0.2")
        scheduler_file = tmp_path / "scheduler.json"
        scheduler_file.write_text(json.dumps({"address": cluster.address}))
        for where in (cluster.address, str(scheduler_file)):
            async with fake_host() as host:
                with pytest.raises(EngineFailed, match=r"has no TLS.*insecure=True"):
                    await DaskEngine(where).open(host)
        rig = DaskRig(cluster)
        engine = rig.engine(insecure=True)
        async with running(rig, engine) as host:
            engine.want("dask", 1)
            await host.agents(1)


async def test_a_scheduler_that_refuses_us_is_an_error(empty_cluster: Cluster) -> None:
    async with fake_host() as host:
        for security in (Security.temporary(), None):
            engine = DaskEngine(empty_cluster.address, security=security)
            with pytest.raises(
                EngineFailed, match=r"Dask at tls://127\.0\.0\.1:\d+: no connection"
            ):
                await engine.open(host)
            assert not engine.processes()


async def test_a_client_and_a_cluster_object_are_taken_as_they_are(lifeline: Lifeline) -> None:
    async with (
        LocalCluster(
            n_workers=1,
            protocol="tls",
            security=True,
            host="127.0.0.1",
            dashboard_address=":0",
            asynchronous=True,
        ) as local,
        Client(local, asynchronous=True) as client,
    ):
        for given in (local, client):
            rig = DaskRig(given)
            engine = rig.engine()
            async with running(rig, engine) as host:
                engine.want("dask", 1)
                await host.agents(1)
