"""The nodes of the Slurm allocation that the script runs in: an `srun` for each.

An agent talks over the stdin and stdout of its srun, so no port is opened. srun has a second
process, which ends the step if srun itself is killed.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence

from holdfast.dataclass import dataclass
from holdfast.runtime.engines.command_engine import Job, SeatedEngine, Times
from holdfast.runtime.engines.engine import EngineFailed, EngineHost, NodeKind, Offer
from holdfast.runtime.engines.slurm import commands
from holdfast.runtime.engines.slurm.client import Commands, grace_in
from holdfast.runtime.engines.slurm.commands import KIND, Standing, hosts_in
from holdfast.runtime.engines.slurm.jobs import NOTICE_S, end_in
from holdfast.runtime.engines.supply import Seat
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.tasks import TaskScope

_LOOK_S = 3.0
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
    try:
        nodes = hosts_in(listed)
    except ValueError as error:
        raise EngineFailed(f"Slurm: SLURM_JOB_NODELIST: {error}") from error
    if not (job.isdecimal() and nodes):
        raise EngineFailed(
            f"Slurm: SLURM_JOB_ID={job!r:.40} and SLURM_JOB_NODELIST={listed!r:.200} do not name "
            f"an allocation with nodes"
        )
    return Allocation(job=job, nodes=nodes)


def offer_of(
    allocation: Allocation, most: int | None, resources: Mapping[str, float] | None
) -> Offer:
    """The first `most` nodes of the allocation."""
    count = len(allocation.nodes[:most])
    return Offer(kinds=[NodeKind(name=KIND, resources=resources, most=count)])


class SlurmAllocation(SeatedEngine):
    """One agent on each node of `allocation`, or on the first `most`.

    `resources` are those of each node; None if the agents find out.
    """

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
        look_s: float = _LOOK_S,
        notice_s: float = NOTICE_S,
    ) -> None:
        nodes = allocation.nodes[:most]
        super().__init__(
            offer_of(allocation, most, resources).kinds,
            [Seat(name=node, kind=KIND) for node in nodes],
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
        self._look_s = look_s
        self._notice_s = notice_s
        self._announced: set[str] = set()

    async def open(self, host: EngineHost) -> None:
        """Ask Slurm whether the allocation is there. Raises EngineFailed."""
        for program in ("srun", "squeue", "scontrol"):
            if shutil.which(program, path=self._environ.get("PATH")) is None:
                raise EngineFailed(f"Slurm: `{program}` was not found on PATH")
        await super().open(host)
        self._owner = host
        found = await self._look()
        if isinstance(found, str):
            raise EngineFailed(f"Slurm: {found}")
        if found.is_over:
            raise EngineFailed(self._over(found))
        config = await self._commands.run(commands.show_config(), deadline_s=_COMMAND_S)
        self._environ = {**grace_in(config.out), **self._environ}
        self._watching = self._tasks.start(self._watch())

    def job_at(self, seat: str) -> Job:
        return Job(
            where=seat,
            command=commands.srun(self._allocation.job, seat, self._python, self._module),
            environ=self._environ,
            over_pipe=True,
            answer_s=self.times.answer_s,
            is_elsewhere=True,
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
            found = await self._look()
            if isinstance(found, Standing):
                if found.is_over:
                    self.refuse(self._over(found))
                    return
                if found.left_s is not None and found.left_s <= self._notice_s:
                    self._announce(found.left_s)
            await asyncio.sleep(self._look_s)

    def _announce(self, left_s: float) -> None:
        for ticket in self.tickets:
            if ticket not in self._announced:
                self._announced.add(ticket)
                self._owner.leaving(ticket, left_s, "the time limit of its Slurm allocation")

    async def _look(self) -> Standing | str:
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
