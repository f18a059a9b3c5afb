"""Asks Slurm's controller, by its commands. Each has a deadline."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence

from holdfast.dataclass import dataclass
from holdfast.runtime.engines import started
from holdfast.runtime.engines.command import Answer, Commands, last_lines
from holdfast.runtime.engines.engine import LEAVES_IN_S, EngineFailed, Invitation
from holdfast.runtime.engines.slurm import commands, jobs, parsing
from holdfast.runtime.engines.slurm.jobs import Job
from holdfast.runtime.engines.slurm.parsing import Row
from holdfast.runtime.engines.slurm.terms import SlurmTerms
from holdfast.runtime.stopped import Watched

_PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol")
_PER_SCANCEL = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """In seconds, for one command each. The host does not wait long for causes."""

    command_s: float = 30.0
    submit_s: float = 60.0
    cause_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """Slurm did not answer, so nobody knows what it has done."""

    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Slurm has answered no."""

    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why a job has ended, in one line. `is_unreached`: its agent could not reach this machine."""

    cause: str
    is_unreached: bool


class SlurmClient:
    """`folder` is one of this run's own, which all nodes see."""

    def __init__(
        self, folder: str, environ: Mapping[str, str], deadlines: Deadlines | None = None
    ) -> None:
        self.folder = folder
        self._environ = commands.environ_of(environ)
        self._commands = Commands(self._environ)
        self._deadlines = deadlines or Deadlines()
        self._has_written = False

    def processes(self) -> list[Watched]:
        return self._commands.processes()

    async def open(self) -> None:
        """Raises EngineFailed if there is no Slurm here that answers."""
        for program in _PROGRAMS:
            if shutil.which(program, path=self._environ.get("PATH")) is None:
                raise EngineFailed(
                    f"Slurm: `{program}` was not found on PATH. Run the script on a login node of "
                    f"the cluster, or inside a job"
                )
        command = commands.squeue(os.getuid())
        answer = await self._commands.run(command, deadline_s=self._deadlines.submit_s)
        if answer.fault:
            raise EngineFailed(f"Slurm: `{shlex.join(command)}` {answer.told}")

    async def grace(self) -> dict[str, str]:
        """The variable that tells agents how long they have after SIGTERM; none if Slurm does not
        say."""
        return grace_in((await self._run(commands.show_config())).out)

    async def rows(self) -> list[Row] | NoAnswer:
        """The user's jobs."""
        answer = await self._run(commands.squeue(os.getuid()))
        if answer.fault:
            return NoAnswer(told=f"squeue {answer.told}")
        return parsing.rows_in(answer.out)

    async def write(self, name: str, invitations: Sequence[Invitation]) -> str:
        """Write the invitations of a batch into the folder. Returns an error message, or ""."""
        self._has_written = True
        packed = _packed(name, invitations)
        answer = await self._run(commands.unpack(self.folder), stdin=packed)
        return f"cannot write to {self.folder}: {answer.told}" if answer.fault else ""

    async def submit(self, terms: SlurmTerms, name: str, count: int) -> str | NoAnswer | Refusal:
        """Submit a batch. Returns Slurm's id of it."""
        command = commands.sbatch(terms, self.folder, name, count)
        answer = await self._commands.run(
            command,
            stdin=commands.script(terms, self.folder, name),
            deadline_s=self._deadlines.submit_s,
        )
        if answer.is_late or (answer.fault and parsing.is_unreachable(answer.err)):
            return NoAnswer(told=f"sbatch {answer.told}")
        array = None if answer.fault else parsing.submitted_in(answer.out)
        how = answer.told or "printed no job id"
        return array or Refusal(told=f"Slurm: `{shlex.join(command)}` {how}")

    async def cancel(self, ids: Sequence[str], *signal: str) -> bool:
        """Returns whether Slurm has answered. It ignores jobs that have ended."""
        answers = [
            await self._run(commands.scancel(ids[first : first + _PER_SCANCEL], *signal))
            for first in range(0, len(ids), _PER_SCANCEL)
        ]
        return not any(one.is_late or parsing.is_unreachable(one.err) for one in answers)

    async def ending(self, job: Job) -> Ending:
        """Why a job has ended: Slurm's word, and the last lines that it has printed."""
        exit_told, printed, within_s = "", "", self._deadlines.cause_s
        if job.row is not None and job.row.state == "FAILED":
            shown = await self._commands.run(commands.show_job(job.id), deadline_s=within_s)
            exit_told = parsing.exit_in(shown.out)
        if not job.is_pending:
            file = commands.output_file(self.folder, job.name, job.number)
            printed = (await self._commands.run(commands.tail(file), deadline_s=within_s)).out
        lines = last_lines(printed.replace(started.SIGN.decode(), ""))
        return Ending(
            cause=started.advised(jobs.end_of(job, exit_told, lines)),
            is_unreached=exit_told == parsing.exit_status(started.UNREACHED),
        )

    async def has_answered(self, job: Job) -> bool:
        """Whether its agent has begun; true if the folder does not answer."""
        file = commands.output_file(self.folder, job.name, job.number)
        answer = await self._run(commands.find_sign(file))
        return answer.is_late or not answer.fault

    def kill(self) -> None:
        """Kill the commands."""
        self._commands.kill()

    def abandon(self, left: Iterable[Job]) -> None:
        """Cancel these jobs and remove the folder, without waiting."""
        left = list(left)
        if ids := [job.id for job in left if job.array]:
            self._commands.begin(commands.scancel(ids))
        for name in {job.name for job in left if not job.array}:
            self._commands.begin(commands.scancel_batch(name))
        if self._has_written:
            self._commands.begin(commands.remove(self.folder))

    async def remove_folder(self) -> None:
        if self._has_written:
            await self._run(commands.remove(self.folder))

    async def _run(self, command: Sequence[str], stdin: bytes = b"") -> Answer:
        return await self._commands.run(command, stdin=stdin, deadline_s=self._deadlines.command_s)


def grace_in(config: str) -> dict[str, str]:
    """The variable for agents, from `scontrol show config`."""
    kill_wait_s = parsing.kill_wait_in(config)
    return {} if kill_wait_s is None else {LEAVES_IN_S: f"{kill_wait_s:g}"}


def _packed(name: str, invitations: Sequence[Invitation]) -> bytes:
    """A tar archive of files that only the user can read."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for number, one in enumerate(invitations):
            entry = tarfile.TarInfo(commands.invitation_file(name, number))
            entry.size, entry.mode = len(one.secret), 0o600
            archive.addfile(entry, io.BytesIO(one.secret))
    return content.getvalue()
