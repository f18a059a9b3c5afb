"""The engine for Dask, as far as it needs no Dask: what it takes, and what it refuses."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.runtime.engines.agent_job import environ_in_dask
from holdfast.runtime.engines.client_engine import DaskEngine
from holdfast.runtime.engines.client_side import refusal, remedy
from holdfast.runtime.engines.engine import EngineFailed
from tests.rig.nodes.engine_host import fake_host


@pytest.mark.parametrize("address", ["tls://head:8786", "wss://head", "scheduler.json"])
def test_an_encrypted_scheduler_is_taken(address: str) -> None:
    assert refusal(address, insecure=False) == ""


@pytest.mark.parametrize("address", ["tcp://head:8786", "head:8786", "ws://head", "ucx://head"])
def test_another_is_refused_with_what_to_do(address: str) -> None:
    told = refusal(address, insecure=False)
    assert address in told
    assert "--protocol tls" in told
    assert "insecure=True" in told
    assert refusal(address, insecure=True) == ""


def test_certificates_that_are_missing_are_named_where_tls_failed() -> None:
    told = remedy("tls://head:8786")
    assert "distributed.comm.tls" in told
    assert "insecure=1 in a URI" in told
    assert remedy("tcp://head:8786") == ""


def test_a_cluster_inside_one_process_has_no_machines() -> None:
    assert "no other machine" in refusal("inproc://10.0.0.1/1/1", insecure=True)


@pytest.mark.anyio
async def test_the_refusal_comes_before_any_connection() -> None:
    engine = DaskEngine("tcp://head:8786")
    async with fake_host() as host:
        with pytest.raises(EngineFailed, match="has no TLS"):
            await engine.open(host)
    assert engine.processes() == []


@pytest.mark.parametrize("cluster", [None, 3, SimpleNamespace(scheduler=None)])
def test_what_is_no_cluster_is_a_type_error(cluster: object) -> None:
    with pytest.raises(TypeError, match="not the address of a Dask scheduler"):
        DaskEngine(cluster)


@pytest.mark.parametrize(
    "cluster",
    [
        "tls://head:8786",
        Path("scheduler.json"),
        SimpleNamespace(scheduler=SimpleNamespace(address="tls://head:1"), security=None),
        SimpleNamespace(scheduler_address="tls://head:1"),
    ],
)
def test_addresses_clients_and_cluster_objects_are_taken(cluster: object) -> None:
    (kind,) = DaskEngine(cluster).offer().kinds
    assert (kind.name, kind.resources, kind.most) == ("dask", None, None)


def test_an_agent_is_not_limited_by_what_the_nanny_sets_for_its_worker() -> None:
    nanny = {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "MALLOC_TRIM_THRESHOLD_": 65536}
    environ = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "4", "MALLOC_TRIM_THRESHOLD_": "65536"}
    found = environ_in_dask(environ, nanny)
    assert found == {"MKL_NUM_THREADS": "4", "MALLOC_TRIM_THRESHOLD_": "65536"}
