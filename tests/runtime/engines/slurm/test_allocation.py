"""Nodes of an allocation of a real Slurm: its environment, its time limit, its end."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runtime.engines.engine import EngineFailed
from holdfast.runtime.engines.slurm.allocation import (
    Allocation,
    allocation_in,
)
from tests.rig import ROOT
from tests.rig.nodes.engine_contract import kind_of, running
from tests.rig.nodes.engine_host import fake_host
from tests.rig.nodes.slurm import KILL_WAIT_S, SlurmCluster, wait_until
from tests.rig.nodes.slurm_rigs import AllocationRig, allocated
from tests.rig.workers.processes import no_process_is_left, wait_for_end

pytestmark = [pytest.mark.anyio, pytest.mark.server]


def test_the_environment_of_a_job_names_its_nodes(slurm: SlurmCluster) -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[08-10],gpu-a"}
    found = allocation_in({**slurm.environ_of_commands(), **environ})
    assert found == Allocation(job="7", nodes=["n08", "n09", "n10", "gpu-a"])
    assert allocation_in({}) is None


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_JOB_ID": "7"},
        {"SLURM_JOB_ID": "x", "SLURM_JOB_NODELIST": "n1"},
    ],
)
def test_an_environment_that_names_none_is_an_error(
    slurm: SlurmCluster, environ: dict[str, str]
) -> None:
    with pytest.raises(EngineFailed, match="SLURM_JOB_NODELIST"):
        allocation_in({**slurm.environ_of_commands(), **environ})


# Without `--no-kill`, the loss of one node ends a job.
OPTIONS = ("--nodelist=n[1-2]", "--exclusive", "--no-kill")


@pytest.fixture
def rig(slurm: SlurmCluster) -> Iterator[AllocationRig]:
    with no_process_is_left(), allocated(slurm, *OPTIONS) as rig:
        yield rig


async def test_an_agent_has_all_that_the_job_has_on_its_node(
    slurm: SlurmCluster,
) -> None:
    with allocated(slurm, "--nodes=1", "--gpus-per-node=2", "--cpus-per-task=4") as rig:
        engine = rig.engine(resources={"CPU": 4.0})
        (kind,) = engine.offer().kinds
        assert (kind.most, kind.resources) == (1, {"CPU": 4.0})
        async with running(rig, engine) as host:
            engine.want(kind.name, 1)
            (agent,) = await host.agents(1)
            assert (agent.facts["hostname"], agent.facts["cuda"]) == ("n1", "0,1")
            assert agent.facts["leaves_in_s"] == str(KILL_WAIT_S)


async def test_a_node_that_is_down_does_not_end_the_others(rig: AllocationRig) -> None:
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want(kind_of(engine), 2)
        agents = {link.facts["hostname"]: link for link in await host.agents(2)}
        rig.slurm.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
        lost = agents["n2"].facts["ticket"]
        await host.until(lambda: lost in host.causes)
        assert host.causes[lost].startswith("n2: `srun ")
        agents["n1"].order("echo", "here")
        assert await agents["n1"].line() == "echo here\n"
        # The node is no longer one of the job's.
        await host.until(lambda: "n2 (tried again: " in host.told[-1:][0])
    await asyncio.to_thread(wait_until, rig.slurm.is_whole)


async def test_the_time_limit_of_the_job_is_announced_for_each_node(rig: AllocationRig) -> None:
    rig.slurm.run("scontrol", "update", f"jobid={rig.allocation.job}", "timelimit=2")
    engine = rig.engine(notice_s=130.0)
    async with running(rig, engine) as host:
        engine.want(kind_of(engine), 2)
        agents = await host.agents(2)
        await host.until(lambda: len(host.warned) == 2)
        assert {ticket for ticket, _, _ in host.warned} == {a.facts["ticket"] for a in agents}
        assert all(0 < seconds <= 120 for _, seconds, _ in host.warned)
        assert {why for _, _, why in host.warned} == {"the time limit of its Slurm allocation"}


async def test_the_end_of_the_job_is_the_end_of_all_nodes(rig: AllocationRig) -> None:
    engine = rig.engine()
    async with running(rig, engine) as host:
        engine.want(kind_of(engine), 2)
        agents = await host.agents(2)
        rig.slurm.run("scancel", rig.allocation.job)
        assert await host.refusal_of() == (
            f"Slurm: the allocation {rig.allocation.job} was cancelled (scancel)"
        )
    for agent in agents:
        wait_for_end(agent.facts["pid"])


async def test_a_job_that_has_ended_is_an_error(rig: AllocationRig) -> None:
    job = rig.allocation.job
    rig.slurm.run("scancel", job)
    running = ("squeue", "--noheader", "--states=RUNNING", f"--jobs={job}")
    await asyncio.to_thread(wait_until, lambda: not rig.slurm.run(*running))
    async with fake_host(rig.address) as host:
        with pytest.raises(EngineFailed, match=r"allocation \d+ was cancelled"):
            await rig.engine().open(host)


async def test_without_srun_the_error_says_so(rig: AllocationRig, tmp_path: Path) -> None:
    rig.environ["PATH"] = str(tmp_path)
    async with fake_host(rig.address) as host:
        with pytest.raises(EngineFailed, match="`srun` was not found on PATH"):
            await rig.engine().open(host)


async def test_agents_end_when_the_script_is_killed(rig: AllocationRig) -> None:
    """The end of its stdin reaches the agent through srun."""
    code = "import asyncio, tests.rig.nodes.slurm_rigs as rigs; asyncio.run(rigs.script())"
    script = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", code],
        env=rig.environ,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert script.stdout is not None
    pids = json.loads(script.stdout.readline())
    script.kill()
    for pid in pids["agents"] + pids["engine"]:
        wait_for_end(pid)
    script.communicate()
