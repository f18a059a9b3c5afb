"""Nodes of Slurm from a login node: one job for each.

One task does what is due, one command after the other: read the queue, announce and report
ends, cancel, submit. A command that hangs is killed at its deadline and tried again; meanwhile
Slurm would not do anything else, either. The names of jobs are the engine's own, so a submission
without an answer is found in the queue.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace

from holdfast.dataclass import dataclass
from holdfast.runtime.engines.engine import EngineFailed, EngineHost, Offer
from holdfast.runtime.engines.slurm import commands, jobs
from holdfast.runtime.engines.slurm.client import Deadlines, NoAnswer, Refusal, SlurmClient
from holdfast.runtime.engines.slurm.commands import KIND, SlurmTerms
from holdfast.runtime.engines.slurm.jobs import ATTEMPTS, Job
from holdfast.runtime.engines.started import not_started
from holdfast.runtime.engines.supply import PAUSE_S, Backoff
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.tasks import TaskScope, happens

# By default, Slurm allows 1,000 jobs in an array.
_LARGEST_BATCH = 500
# A busy controller is asked less often: the pauses take this many times as long as a poll.
_PAUSE_PER_POLL = 10
# Poll interval and duration after a node is lost.
_ASKED_PAUSE_S = 0.1
_ASKED_S = 2.0
# At the end: the first pause between two polls, the longest, and the part of the time after which
# the jobs that are left get SIGKILL.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_BEFORE_KILL = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTimes:
    """In seconds: between two polls of the queue, for the agent of a job that runs to begin, from
    the announcement of a job's end to the end, and before a job that failed is replaced (twice as
    long after each failure in a row)."""

    poll_s: float = 3.0
    answer_s: float = 60.0
    notice_s: float = jobs.NOTICE_S
    pause_s: float = PAUSE_S
    deadlines: Deadlines = Deadlines()


class SlurmLogin:
    """Implements `holdfast.runtime.engines.engine.Engine` with jobs of `sbatch`."""

    def __init__(
        self,
        terms: SlurmTerms,
        *,
        tasks: TaskScope,
        environ: Mapping[str, str] | None = None,
        times: SlurmTimes | None = None,
    ) -> None:
        self._terms = terms
        self._times = times or SlurmTimes()
        self._name = f"holdfast-{secrets.token_hex(4)}"
        self._slurm = SlurmClient(
            os.path.join(terms.folder, self._name),
            os.environ if environ is None else environ,
            self._times.deadlines,
        )
        self._tasks = tasks.scope()
        self._serving: asyncio.Task[None] | None = None
        self._jobs: dict[str, Job] = {}
        self._arrays: dict[str, str] = {}  # Slurm's ids of the batches, by name
        self._asked: dict[str, float] = {}  # until when the host waits, by ticket
        self._batches = 0
        self._wanted = 0
        self._backoff = Backoff(least_s=self._times.pause_s)
        # Since the last success: the jobs that have failed, and how often some were cancelled.
        self._failed = self._cancels = 0
        self._has_worked = False
        self._is_closing = self._is_killed = False
        self._waits = ""
        self._due = asyncio.Event()

    def offer(self) -> Offer:
        return self._terms.offer

    async def open(self, host: EngineHost) -> None:
        """Ask Slurm whether it answers. Raises EngineFailed."""
        self._host = host
        await self._slurm.open()
        variables = {**await self._slurm.grace(), **self._terms.variables}
        self._terms = replace(self._terms, variables=variables)
        self._serving = self._tasks.start(self._serve())

    def want(self, kind: str, count: int) -> None:
        if kind != KIND:
            raise ValueError(f"there are no nodes of the kind {kind!r}")
        self._wanted = count
        self._due.set()

    def ask(self, ticket: str) -> None:
        if ticket in self._jobs:
            self._asked[ticket] = asyncio.get_running_loop().time() + _ASKED_S
            self._due.set()

    def give_back(self, ticket: str) -> None:
        if (job := self._jobs.get(ticket)) is not None:
            job.order("it was given back")
            self._due.set()

    def processes(self) -> list[Watched]:
        return self._slurm.processes()

    def kill(self) -> None:
        """Agents end with their connection; this also ends the jobs that have no agent yet."""
        self._stop()
        self._is_killed = True
        self._slurm.kill()
        self._slurm.abandon(self._jobs.values())

    async def close(self, grace_s: float) -> str:
        self._stop()
        if self._serving is None:
            return ""
        await asyncio.wait([self._serving], timeout=grace_s)
        kill_after_s = 0.0 if self._is_killed else _BEFORE_KILL * grace_s
        warning = ""
        try:
            async with asyncio.timeout(grace_s):
                await self._end_all(asyncio.get_running_loop().time() + kill_after_s)
                await self._slurm.remove_folder()
        except TimeoutError:
            self._slurm.abandon(self._jobs.values())
            warning = jobs.left_text(self._jobs.values())
        self._end(dict.fromkeys(self._jobs, warning))
        return warning

    def _stop(self) -> None:
        self._is_closing = True
        self._tasks.cancel()

    # -- the task ---------------------------------------------------------------------------------

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_closing:
            self._due.clear()
            began = loop.time()
            if await self._poll():
                await self._cancel_ordered()
                await self._submit()
            pause_s = max(self._times.poll_s, _PAUSE_PER_POLL * (loop.time() - began))
            await happens(self._due, _ASKED_PAUSE_S if self._is_asked(loop.time()) else pause_s)

    def _is_asked(self, now: float) -> bool:
        """True if the host waits for the cause of a loss, which Slurm needs a moment to notice."""
        self._asked = {
            ticket: until
            for ticket, until in self._asked.items()
            if ticket in self._jobs and until > now
        }
        return bool(self._asked)

    async def _poll(self) -> bool:
        """Read the queue, and report what has changed. Returns whether Slurm has answered."""
        rows = await self._slurm.rows()
        if isinstance(rows, NoAnswer):
            self._say(_silent(rows))
            return False
        for name, array in jobs.adopted(self._jobs.values(), rows).items():
            self._know(name, array)
        if ids := jobs.strays(f"{self._name}-", self._arrays, rows):
            await self._slurm.cancel(ids)
        places = {(row.array, row.number): row for row in rows}
        for job in self._jobs.values():
            job.see(places.get((job.array, job.number)))
        await self._report_ends()
        self._announce_ends()
        await self._find_silent_agents()
        self._say(self._what_is_missing())
        return True

    async def _report_ends(self) -> None:
        over = [job for job in self._jobs.values() if job.is_over]
        async with asyncio.TaskGroup() as group:
            endings = [group.create_task(self._slurm.ending(job)) for job in over]
        for job, ending in zip(over, endings, strict=True):
            if ending.result().is_unreached:
                job.is_useless = job.is_unreached = True
        found = {job.ticket: one.result() for job, one in zip(over, endings, strict=True)}
        self._end({ticket: ending.cause for ticket, ending in found.items()})

    def _announce_ends(self) -> None:
        for job in list(self._jobs.values()):
            if job.ends_soon(self._times.notice_s):
                job.is_leaving = True
                self._host.leaving(job.ticket, job.seconds_left or 0.0, "its Slurm time limit")
            elif job.is_hopeless:
                job.give_up(jobs.never_starts(job))

    async def _find_silent_agents(self) -> None:
        answer_s = self._times.answer_s
        for job in [job for job in self._jobs.values() if job.is_silent(answer_s)]:
            if await self._slurm.has_answered(job):
                job.has_answered = True
            else:
                job.give_up(not_started(answer_s))

    async def _cancel_ordered(self) -> None:
        for job in jobs.surplus(self._jobs.values(), self._wanted):
            job.order("it is not needed any more")
        ordered = [job for job in self._jobs.values() if job.ordered and not job.is_cancelled]
        # Slurm, which has just been asked, does not know those without an id.
        self._end({job.ticket: jobs.end_of(job) for job in ordered if not job.array})
        known = [job for job in ordered if job.array]
        if known and await self._slurm.cancel([job.id for job in known]):
            for job in known:
                job.is_cancelled = True

    async def _submit(self) -> None:
        """Submit the batches that Slurm does not know, and what is missing."""
        for name in dict.fromkeys(job.name for job in self._jobs.values() if not job.array):
            await self._submit_batch(name)
        missing = self._wanted - sum(job.is_held for job in self._jobs.values())
        if missing > 0 and self._backoff.is_over(asyncio.get_running_loop().time()):
            await self._invite(min(missing, _LARGEST_BATCH))

    async def _invite(self, count: int) -> None:
        """Submit a new batch, whose invitations wait for it in the folder."""
        self._batches += 1
        name = f"{self._name}-{self._batches}"
        try:
            invitations = [self._host.invite(KIND, over_pipe=False) for _ in range(count)]
        except EngineFailed as error:
            self._refuse(str(error))
            return
        for number, one in enumerate(invitations):
            self._jobs[one.ticket] = Job(ticket=one.ticket, name=name, number=number)
        if fault := await self._slurm.write(name, invitations):
            self._fail(name, f"Slurm: {fault}")
        else:
            await self._submit_batch(name)

    async def _submit_batch(self, name: str) -> None:
        count = 1 + max(job.number for job in self._batch(name))
        answer = await self._slurm.submit(self._terms, name, count)
        match answer:
            case NoAnswer():
                self._say(_silent(answer))
            case Refusal(told=told):
                self._fail(name, told)
            case array:
                self._know(name, array)
                self._due.set()

    def _fail(self, name: str, cause: str) -> None:
        """A batch cannot be submitted."""
        batch = self._batch(name)
        for job in batch:
            job.give_up(cause)
        self._end({job.ticket: cause for job in batch})

    def _what_is_missing(self) -> str:
        """What the user waits for."""
        held = [job for job in self._jobs.values() if job.is_held]
        if len(held) >= self._wanted and all(job.is_steady for job in held):
            self._succeed()
        if text := jobs.queue_text(held):
            return text
        if self._backoff.is_over(asyncio.get_running_loop().time()):
            return ""
        how = "was cancelled" if self._cancels else "failed"
        return f"a new Slurm job, because the last one {how} ({self._backoff.cause})"

    # -- jobs -------------------------------------------------------------------------------------

    def _batch(self, name: str) -> list[Job]:
        return [job for job in self._jobs.values() if job.name == name]

    def _know(self, name: str, array: str) -> None:
        """Slurm has this id for a batch."""
        self._arrays[name] = array
        for job in self._batch(name):
            job.array = array

    def _succeed(self) -> None:
        self._backoff, self._failed, self._cancels = self._backoff.after_success(), 0, 0

    def _end(self, causes: Mapping[str, str]) -> None:
        """The jobs with these tickets have ended. Refuse if none has ever worked, or if somebody
        else cancels them again and again."""
        over = [self._jobs.pop(ticket) for ticket in causes]
        failed = [job for job in over if job.has_failed]
        cancelled = [job for job in over if job.was_cancelled]
        self._has_worked = self._has_worked or any(job.has_worked for job in over)
        if useless := failed or cancelled:
            cause, now = causes[useless[-1].ticket], asyncio.get_running_loop().time()
            self._backoff = self._backoff.after_failure(now, cause)
            self._failed += len(failed)
            self._cancels += not failed
        elif any(job.has_worked for job in over):
            self._succeed()
        for ticket, cause in causes.items():
            self._host.gone(ticket, cause)
        if cancelled and not self._is_closing:
            if self._cancels >= ATTEMPTS:
                self._refuse(jobs.unwanted_text(self._backoff.cause))
            else:
                self._host.tell(jobs.replaced_text(self._backoff.cause))
        is_in_vain = self._failed >= ATTEMPTS or any(job.is_certain for job in over)
        if failed and is_in_vain and not (self._jobs or self._has_worked):
            self._refuse(causes[failed[-1].ticket])

    def _refuse(self, text: str) -> None:
        if self._wanted and not self._is_closing:
            self._wanted = 0
            self._host.refused(text)

    def _say(self, text: str) -> None:
        if text != self._waits:
            self._waits = text
            self._host.waits(text)

    # -- the end ----------------------------------------------------------------------------------

    async def _end_all(self, kill_at: float) -> None:
        """Cancel all jobs, and poll the queue until they have ended. A submission that was cut
        off just now may still be answered there."""
        loop, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
        for job in self._jobs.values():
            job.order("the run ended")
        while self._jobs:
            if await self._poll():
                await self._cancel_ordered()
            if loop.time() >= kill_at:
                await self._slurm.cancel([job.id for job in self._jobs.values()], *commands.KILL)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _silent(answer: NoAnswer) -> str:
    return f"Slurm, which does not answer; trying again ({answer.told})"
