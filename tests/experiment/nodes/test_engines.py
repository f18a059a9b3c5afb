"""What the settings of a cluster become for its engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast import cluster
from holdfast.experiment.nodes.cluster_config import Cluster
from holdfast.experiment.nodes.engines import PlannedEngine, engine_of
from holdfast.runtime.engines.engine import NodeKind
from holdfast.runtime.engines.slurm.allocation import SlurmAllocation
from holdfast.runtime.engines.slurm.login import SlurmLogin
from holdfast.trial.errors import InvalidConfig
from tests.rig.free_tasks import free_tasks

ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-4]"}


@pytest.fixture(autouse=True)
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that expands lists of hosts."""
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\nprintf 'n1\\nn2\\nn3\\nn4\\n'\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def made(of: Cluster, environ: Mapping[str, str] | None = None) -> PlannedEngine:
    return engine_of(
        of,
        machine={"CPU": 2.0},
        gpu_names=[],
        environ={"PATH": os.environ["PATH"], **(environ or {})},
    )


def slurm(of: cluster.Slurm, environ: Mapping[str, str] | None = None) -> tuple[type, int | None]:
    """The engine and the number of nodes."""
    planned = made(of, environ)
    (kind,) = planned.offer.kinds

    async def make() -> type:
        return type(planned.make(free_tasks()))

    return asyncio.run(make()), planned.most_of(kind)


@pytest.mark.parametrize("of", [cluster.Dask("tls://head:8786"), cluster.Ray("ray://head:10001")])
def test_without_settings_nodes_are_not_limited_and_find_out_what_they_have(of: Cluster) -> None:
    planned = made(of)
    (kind,) = planned.offer.kinds
    assert kind == NodeKind(name=type(of).__name__.lower())
    assert planned.most_of(kind) is None


@pytest.mark.parametrize(
    "of",
    [
        cluster.Dask("tls://head", nodes=4, cpus_per_node=8, resources_per_node={"disk": 1}),
        cluster.Ray(nodes=(2, 4), cpus_per_node=8, resources_per_node={"disk": 1}),
    ],
)
def test_settings_limit_nodes_and_replace_what_they_find(of: Cluster) -> None:
    planned = made(of)
    (kind,) = planned.offer.kinds
    assert planned.most_of(kind) == 4
    assert kind.resources == {"CPU": 8, "disk": 1}


def test_what_is_no_dask_cluster_is_an_invalid_config() -> None:
    with pytest.raises(InvalidConfig, match=r"Dask\(...\): not the address"):
        made(cluster.Dask(3))


def test_agents_of_this_machine_share_it_unless_they_are_given_more() -> None:
    machine = {"CPU": 8.0, "GPU": 4.0, "tpu": 2.0}
    given = cluster.Local(agents=2)
    planned = engine_of(given, machine=machine, gpu_names=["0", "1", "2", "3"], environ={})
    (kind,) = planned.offer.kinds
    assert (kind.most, kind.resources) == (2, {"CPU": 4.0, "tpu": 1.0, "GPU": 2})
    given = cluster.Local(agents=2, cpus_per_node=8)
    (kind,) = engine_of(given, machine=machine, gpu_names=[], environ={}).offer.kinds
    assert kind.resources == {"CPU": 8.0, "tpu": 1.0}


def test_hosts_say_themselves_what_they_have_unless_it_is_given() -> None:
    (kind,) = made(cluster.SSH(["a", "b"])).offer.kinds
    assert (kind.most, kind.resources) == (2, None)
    (kind,) = made(cluster.SSH(["a", "b"], cpus_per_node=4)).offer.kinds
    assert kind.resources == {"CPU": 4.0}


def test_hosts_and_agents_may_be_used_as_they_are_needed() -> None:
    for of in (cluster.SSH(["a", "b", "c"], nodes=(1, 2)), cluster.Local(agents=(1, 2))):
        planned = made(of)
        (kind,) = planned.offer.kinds
        assert (planned.is_elastic, planned.least, planned.most_of(kind)) == (True, 1, 2)
        assert planned.idle_s == 60
    assert not made(cluster.SSH(["a", "b", "c"])).is_elastic


def test_slurm_knows_custom_resources_of_nodes_that_find_out_their_cpus() -> None:
    given = {"disk": 1.0}
    (kind,) = made(cluster.Slurm(nodes=2, resources_per_node=given)).offer.kinds
    assert kind.resources == given
    (kind,) = made(cluster.Slurm(resources_per_node=given), ALLOCATION).offer.kinds
    assert kind.resources == given


def test_a_host_that_no_ssh_could_reach_is_an_invalid_config() -> None:
    with pytest.raises(InvalidConfig, match="'a:99999' is no host for ssh"):
        made(cluster.SSH(["a:99999"]))


def test_slurm_gives_jobs_or_the_nodes_of_the_allocation_that_the_script_runs_in() -> None:
    assert slurm(cluster.Slurm(nodes=(1, 3))) == (SlurmLogin, 3)
    assert slurm(cluster.Slurm(), ALLOCATION) == (SlurmAllocation, 4)
    assert slurm(cluster.Slurm(nodes=2), ALLOCATION) == (SlurmAllocation, 2)
    assert slurm(cluster.Slurm(nodes=(1, 9)), ALLOCATION) == (SlurmAllocation, 4)
    assert slurm(cluster.Slurm(nodes=9, partition="gpu"), ALLOCATION) == (SlurmLogin, 9)


@pytest.mark.parametrize(
    ("of", "environ", "problem"),
    [
        (cluster.Slurm(), {}, "say how many nodes"),
        (cluster.Slurm(nodes=5), ALLOCATION, "the allocation 7, .* has 4"),
        (cluster.Slurm(nodes=1, cpus_per_node=1.5), {}, "whole CPUs"),
        (cluster.Slurm(nodes=1, options=["--array=1-9"]), {}, "cannot be passed to sbatch"),
        (cluster.Slurm(), {"SLURM_JOB_ID": "7"}, "do not name an allocation"),
    ],
)
def test_what_slurm_cannot_give_is_an_invalid_config(
    of: cluster.Slurm, environ: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        made(of, environ)
