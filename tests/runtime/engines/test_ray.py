"""The engine for Ray, as far as it needs no Ray: what it refuses, and what it makes of nodes."""

import time
from typing import Any

import pytest

from holdfast.runtime.engines.agent_job import environ_in_ray
from holdfast.runtime.engines.client_engine import RayEngine, ray_refusal
from holdfast.runtime.engines.engine import EngineFailed
from holdfast.runtime.engines.ray_client import can_run, label, seconds_left
from tests.rig.nodes.engine_host import fake_host

NODE: dict[str, Any] = {
    "NodeID": "d633795c9fee74026e23def4",
    "Alive": True,
    "NodeManagerHostname": "worker-7",
    "NodeManagerAddress": "10.0.0.7",
    "Resources": {"CPU": 8.0, "GPU": 2.0},
}


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_a_client_with_tls_is_taken(value: str) -> None:
    assert ray_refusal("auto", {"RAY_USE_TLS": value}) == ""


@pytest.mark.parametrize("environ", [{}, {"RAY_USE_TLS": "0"}])
def test_another_is_refused_with_what_to_do(environ: dict[str, str]) -> None:
    told = ray_refusal("ray://head:10001", environ)
    assert "ray://head:10001" in told
    assert "RAY_USE_TLS=1" in told
    assert "insecure=True" in told


@pytest.mark.anyio
async def test_the_refusal_comes_before_any_connection() -> None:
    engine = RayEngine(environ={})
    async with fake_host() as host:
        with pytest.raises(EngineFailed, match="has no TLS"):
            await engine.open(host)
    assert engine.processes() == []


def test_the_kind_has_the_resources_that_are_asked_for() -> None:
    (kind,) = RayEngine(resources={"CPU": 8, "GPU": 1}).offer().kinds
    assert (kind.name, kind.resources) == ("ray", {"CPU": 8, "GPU": 1})
    (kind,) = RayEngine().offer().kinds
    assert kind.resources is None


def test_a_node_is_named_by_its_host() -> None:
    assert label(NODE) == "the Ray node worker-7 (10.0.0.7, d633795c)"


def test_a_node_must_be_alive_and_have_what_is_asked_for() -> None:
    assert can_run(NODE, {"CPU": 8, "GPU": 1})
    assert not can_run(NODE, {"GPU": 3})
    assert not can_run(NODE, {"TPU": 1})
    assert not can_run({**NODE, "Alive": False}, {})


def test_a_node_that_is_drained_has_until_its_deadline() -> None:
    assert 50 < seconds_left(int((time.time() + 60) * 1000)) <= 60
    assert seconds_left(1) == 0.0
    assert seconds_left(0) > 0


def test_an_agent_is_not_limited_by_what_ray_sets_for_its_actor() -> None:
    now = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "RAY_JOB_ID": "1"}
    own = environ_in_ray
    assert own(now, {}, has_gpus=False) == {"RAY_JOB_ID": "1"}
    before = {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "2,3", "PATH": "/bin"}
    found = own(now, before, has_gpus=False)
    assert found == {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "2,3", "RAY_JOB_ID": "1"}
    assigned = {**now, "CUDA_VISIBLE_DEVICES": "3"}
    assert own(assigned, before, has_gpus=True)["CUDA_VISIBLE_DEVICES"] == "3"
    assert own(now, None, has_gpus=False) == now
