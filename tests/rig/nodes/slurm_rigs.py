"""Engines for a real Slurm, whose agents are `fake_agent.py`."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from holdfast.runtime.engines.slurm.allocation import Allocation, SlurmAllocation, allocation_in
from holdfast.runtime.engines.slurm.commands import SlurmTerms
from holdfast.runtime.engines.slurm.login import SlurmLogin, SlurmTimes
from tests.rig import ROOT
from tests.rig.bench import Bench
from tests.rig.free_tasks import free_tasks
from tests.rig.nodes.engine_contract import kind_of, times_of
from tests.rig.nodes.engine_host import AGENT, fake_host
from tests.rig.nodes.slurm import SlurmCluster, wait_until
from tests.rig.workers.processes import PATIENCE_S

PYTHON = ("env", f"PYTHONPATH={ROOT}", sys.executable)


class LoginRig:
    """Jobs of sbatch, which have their invitations in `folder`."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        self.slurm = slurm
        self.address = slurm.address
        self._folder = folder

    def engine(self, *, python: Sequence[str] = (), answer_s: float = PATIENCE_S) -> SlurmLogin:
        made, folder = python or PYTHON, str(self._folder)
        return SlurmLogin(
            SlurmTerms(nodes=2, python=made, folder=folder, cpus=1, module=AGENT),
            tasks=free_tasks(),
            environ=self.slurm.environ_of_commands(),
            times=SlurmTimes(poll_s=0.1, answer_s=answer_s, pause_s=0.05),
        )


class AllocationRig:
    """The nodes of one job, which runs nothing else."""

    def __init__(self, slurm: SlurmCluster, environ: dict[str, str]) -> None:
        self.slurm = slurm
        self.address = slurm.address
        self.environ = environ
        found = allocation_in(environ)
        assert found is not None
        self.allocation: Allocation = found

    def engine(
        self, *, python: Sequence[str] = (), answer_s: float = PATIENCE_S, **more: Any
    ) -> SlurmAllocation:
        return SlurmAllocation(
            self.allocation,
            tasks=free_tasks(),
            python=python or PYTHON,
            environ=self.environ,
            module=AGENT,
            times=times_of(answer_s),
            poll_s=0.1,
            **more,
        )


@contextmanager
def allocated(slurm: SlurmCluster, *options: str) -> Iterator[AllocationRig]:
    """An allocation, as `salloc` makes one."""
    name = f"allocation-{secrets.token_hex(4)}"
    slurm.run("salloc", "--no-shell", f"--job-name={name}", *options)
    job, nodes = slurm.run("squeue", "--noheader", f"--name={name}", "--format=%i %N").split()
    environ = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": nodes, "SLURM_LABELIO": "1"}
    try:
        yield AllocationRig(slurm, {**slurm.environ_of_commands(), **environ})
    finally:
        slurm.run("scancel", job)
        wait_until(lambda: not slurm.run("squeue", "--noheader"))


async def script() -> None:
    """Main function of a script in an allocation, which is killed when it has its agents."""
    found = allocation_in(os.environ)
    assert found is not None
    engine = SlurmAllocation(found, tasks=free_tasks(), python=PYTHON, module=AGENT)
    async with fake_host() as host:
        await engine.open(host)
        engine.want(kind_of(engine), len(found.nodes))
        agents = [link.facts["pid"] for link in await host.agents(len(found.nodes))]
        engines = [process.pid for process in engine.processes()]
        print(json.dumps({"agents": agents, "engine": engines}), flush=True)
        await asyncio.sleep(600)


# A job gets nothing of the script's environment, so this names the script that has just begun.
_PYTHON = """\
#!/bin/sh
export PYTHONPATH={root} HOLDFAST_TEST_FOLDER={folder}
export HOLDFAST_TEST_MARKS=$(ls -t {folder}/marks-* | head -n 1)
exec {python} "$@"
"""


@contextmanager
def jobs_of(bench: Bench, slurm: SlurmCluster, **settings: object) -> Iterator[SlurmCluster]:
    """The bench's script submits two jobs with one CPU each; `settings` are those of
    `cluster.Slurm`. None is in the queue at the end."""
    python = bench.write(
        _PYTHON.format(root=ROOT, folder=bench.folder / "bench", python=sys.executable), "python"
    )
    python.chmod(0o700)
    query = {
        "nodes": 2,
        "cpus_per_node": 1,
        "python": str(python),
        "folder": str(bench.folder / "shared"),
        "controller_address": slurm.address,
        **settings,
    }
    bench.environ |= slurm.environ_of_commands()
    bench.environ["HOLDFAST_CLUSTER"] = f"slurm://main?{urlencode(query)}"
    yield slurm
    wait_until(lambda: not slurm.run("squeue", "--noheader"))


def occupy(slurm: SlurmCluster) -> None:
    """Its four nodes are not free until the job `busy` is cancelled."""
    slurm.run(
        "sbatch", "--job-name=busy", "--nodes=4", "--exclusive", "--output=/dev/null",
        "--wrap=sleep 1000",
    )  # fmt: skip
