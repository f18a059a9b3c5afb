"""The nodes of the Slurm allocation that the script runs in: an `srun` for each.

An agent talks over the stdin and stdout of its srun, so no port is opened. srun has a second
process, which ends the step if srun itself is killed.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from holdfast.dataclass import dataclass
from holdfast.runtime.engines.agent_process import Job
from holdfast.runtime.engines.command_engine import CommandEngine
from holdfast.runtime.engines.engine import EngineFailed, EngineHost, NodeKind, Offer
from holdfast.runtime.engines.slurm import commands
from holdfast.runtime.engines.slurm.client import Commands, grace_in
from holdfast.runtime.engines.slurm.commands import KIND, Standing
from holdfast.runtime.engines.slurm.jobs import NOTICE_S, end_in
from holdfast.runtime.engines.supplied import Times
from holdfast.runtime.engines.supply import Place
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.tasks import TaskScope

_POLL_S = 3.0
_COMMAND_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A job of the user's, and its nodes."""

    job: str
    nodes: Sequence[str]


def allocation_in(environ: Mapping[str, str]) -> Allocation | None:
    """The allocation that this process runs in; None if it runs in none. Raises EngineFailed."""
    job = environ.get("SLURM_JOB_ID", "")
    if not job:
        return None
    listed = environ.get("SLURM_JOB_NODELIST", "")
    nodes = _hosts_in(listed, environ) if listed else []
    if not (job.isdecimal() and nodes):
        raise EngineFailed(
            f"Slurm: SLURM_JOB_ID={job!r:.40} and SLURM_JOB_NODELIST={listed!r:.200} do not name "
            f"an allocation with nodes"
        )
    return Allocation(job=job, nodes=nodes)


def _hosts_in(listed: str, environ: Mapping[str, str]) -> list[str]:
    try:
        done = subprocess.run(
            commands.show_hosts(listed),
            env=commands.environ_of(environ),
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineFailed(
            f"Slurm: SLURM_JOB_NODELIST={listed!r:.200} cannot be read by scontrol: {error}"
        ) from error
    return done.stdout.split()


def offer_of(
    allocation: Allocation, most: int | None, resources: Mapping[str, float] | None
) -> Offer:
    """The first `most` nodes of the allocation."""
    count = len(allocation.nodes[:most])
    return Offer(kinds=[NodeKind(name=KIND, resources=resources, most=count)])


class SlurmAllocation(CommandEngine):
    """One agent on each node of `allocation`, or on the first `most`.

    `resources` are those of each node; None if the agents find out.
    """

    over_pipe = is_elsewhere = True

    def __init__(
        self,
        allocation: Allocation,
        *,
        tasks: TaskScope,
        python: Sequence[str],
        most: int | None = None,
        resources: Mapping[str, float] | None = None,
        environ: Mapping[str, str] | None = None,
        module: str = "holdfast.agent",
        times: Times | None = None,
        poll_s: float = _POLL_S,
        notice_s: float = NOTICE_S,
    ) -> None:
        nodes = allocation.nodes[:most]
        super().__init__(
            offer_of(allocation, most, resources).kinds,
            [Place(name=node, kind=KIND) for node in nodes],
            times or Times(),
        )
        self._allocation = allocation
        self._python = tuple(python)
        self._module = module
        given = os.environ if environ is None else environ
        self._environ = commands.environ_of_step(given)
        self._commands = Commands(commands.environ_of(given))
        self._tasks = tasks.scope()
        self._watching: asyncio.Task[None] | None = None
        self._poll_s = poll_s
        self._notice_s = notice_s
        self._announced: set[str] = set()

    async def open(self, host: EngineHost) -> None:
        """Ask Slurm whether the allocation is there. Raises EngineFailed."""
        for program in ("srun", "squeue", "scontrol"):
            if shutil.which(program, path=self._environ.get("PATH")) is None:
                raise EngineFailed(f"Slurm: `{program}` was not found on PATH")
        await super().open(host)
        found = await self._standing()
        if isinstance(found, str):
            raise EngineFailed(f"Slurm: {found}")
        if found.is_over:
            raise EngineFailed(self._over(found))
        config = await self._commands.run(commands.show_config(), deadline_s=_COMMAND_S)
        self._environ = {**grace_in(config.out), **self._environ}
        self._watching = self._tasks.start(self._watch())

    def job_at(self, place: str) -> Job:
        return Job(
            where=place,
            command=commands.srun(self._allocation.job, place, self._python, self._module),
            environ=self._environ,
            over_pipe=True,
            answer_s=self.times.answer_s,
            ends_its_agent=True,
        )

    def processes(self) -> list[Watched]:
        return [*super().processes(), *self._commands.processes()]

    def kill(self) -> None:
        self._tasks.cancel()
        self._commands.kill()
        super().kill()

    async def close(self, grace_s: float) -> str:
        self._tasks.cancel()
        if self._watching is not None:
            await asyncio.wait([self._watching], timeout=grace_s)
        return await super().close(grace_s)

    async def _watch(self) -> None:
        """Announce the end of the allocation, and notice it."""
        while True:
            found = await self._standing()
            if isinstance(found, Standing):
                if found.is_over:
                    self.refuse(self._over(found))
                    return
                if found.left_s is not None and found.left_s <= self._notice_s:
                    self._announce(found.left_s)
            await asyncio.sleep(self._poll_s)

    def _announce(self, left_s: float) -> None:
        for ticket in {place.ticket for place in self._supply.used} - self._announced:
            self._announced.add(ticket)
            self._host.leaving(ticket, left_s, "the time limit of its Slurm allocation")

    async def _standing(self) -> Standing | str:
        """How it stands with the allocation, or why Slurm does not say."""
        command = commands.squeue_of(self._allocation.job)
        answer = await self._commands.run(command, deadline_s=_COMMAND_S)
        if commands.is_unknown(answer.err):
            return Standing("COMPLETED")
        if answer.fault:
            return f"`{shlex.join(command)}` {answer.told}"
        return commands.standing_in(answer.out) or Standing("COMPLETED")

    def _over(self, found: Standing) -> str:
        return f"Slurm: the allocation {self._allocation.job} {end_in(found.state)}"
