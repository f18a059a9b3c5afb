"""Runs Slurm's commands, off the loop and with a deadline: a command of a cluster may hang."""

from __future__ import annotations

import asyncio
import io
import os
import shlex
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import BinaryIO

from holdfast.dataclass import dataclass
from holdfast.names import printable
from holdfast.runtime import process_control
from holdfast.runtime.engines import started
from holdfast.runtime.engines.engine import LEAVES_IN_S, EngineFailed, Invitation
from holdfast.runtime.engines.slurm import commands, jobs
from holdfast.runtime.engines.slurm.commands import Row, SlurmTerms
from holdfast.runtime.engines.slurm.jobs import Job
from holdfast.runtime.launcher import describe_code
from holdfast.runtime.process_exits import Watched, reaped

# More than any answer that is expected.
_LONGEST_ANSWER = 1 << 24
_SHOWN_LINES = 5
_SHOWN_BYTES = 1000
_KILL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command has printed. `fault` says why it has failed; "" if it has not. `is_late`: it
    was killed at its deadline, so nobody knows what it has done."""

    out: str = ""
    err: str = ""
    fault: str = ""
    is_late: bool = False

    @property
    def told(self) -> str:
        """How it has failed, with its last lines, in one line."""
        lines = last_lines(f"{self.out}\n{self.err}")
        return f"{self.fault}: {lines}" if lines else self.fault


class Commands:
    """The commands that run now. `environ` is their environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._running: set[subprocess.Popen[bytes]] = set()

    async def run(
        self, command: Sequence[str], *, deadline_s: float, stdin: bytes = b""
    ) -> Answer:
        """Wait for the command. It is killed at its deadline, and if this task is cancelled."""
        with _memory(stdin) as given, _memory() as out, _memory() as err:
            try:
                process = self._start(command, given, out, err)
            except OSError as error:
                return Answer(fault=f"cannot run: {error.strerror or error}")
            self._running.add(process)
            try:
                was_late = bool(await reaped(process, deadline_s))
            except asyncio.CancelledError:
                process_control.kill_group(process.pid)
                await reaped(process, _KILL_S)
                raise
            finally:
                self._running.discard(process)
            fault = f"did not end within {deadline_s:g} s" if was_late else ""
            if process.returncode and not was_late:
                fault = describe_code(process.returncode)
            return Answer(out=_text(out), err=_text(err), fault=fault, is_late=was_late)

    def begin(self, command: Sequence[str]) -> None:
        """Start a command and do not wait for it: this process is about to end."""
        with _memory() as nothing:
            try:
                process = self._start(command, nothing, nothing, nothing)
            except OSError:  # there is nobody to tell
                return
        threading.Thread(target=process.wait, name="holdfast-command", daemon=True).start()

    def processes(self) -> list[Watched]:
        return [
            Watched(process.pid, f"`{_program(process)}`", _killer(process))
            for process in self._running
        ]

    def kill(self) -> None:
        for process in self._running:
            process_control.kill_group(process.pid)

    def _start(
        self, command: Sequence[str], given: BinaryIO, out: BinaryIO, err: BinaryIO
    ) -> subprocess.Popen[bytes]:
        """Start it in a session of its own: a Ctrl-C does not reach it. Raises OSError."""
        return subprocess.Popen(
            command,
            env=self._environ,
            stdin=given,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def last_lines(text: str) -> str:
    """The last lines of what a command has printed, as one line."""
    lines = [line.strip() for line in text[-_SHOWN_BYTES:].splitlines() if line.strip()]
    return " | ".join(printable(line) for line in lines[-_SHOWN_LINES:])


def _memory(content: bytes = b"") -> BinaryIO:
    """A file in memory: what is in it may be secret."""
    file = open(os.memfd_create("holdfast-command"), "w+b", buffering=0)  # noqa: SIM115
    file.write(content)
    file.seek(0)
    return file


def _text(file: BinaryIO) -> str:
    return os.pread(file.fileno(), _LONGEST_ANSWER, 0).decode(errors="replace")


def _program(process: subprocess.Popen[bytes]) -> str:
    args = process.args
    assert isinstance(args, (list, tuple))
    return str(args[0])


def _killer(process: subprocess.Popen[bytes]) -> Callable[[str], None]:
    return lambda why: process_control.kill_group(process.pid)


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
        return commands.rows_in(answer.out)

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
        if answer.is_late or (answer.fault and commands.is_unreachable(answer.err)):
            return NoAnswer(told=f"sbatch {answer.told}")
        array = None if answer.fault else commands.submitted_in(answer.out)
        how = answer.told or "printed no job id"
        return array or Refusal(told=f"Slurm: `{shlex.join(command)}` {how}")

    async def cancel(self, ids: Sequence[str], *signal: str) -> bool:
        """Returns whether Slurm has answered. It ignores jobs that have ended."""
        answers = [
            await self._run(commands.scancel(ids[first : first + _PER_SCANCEL], *signal))
            for first in range(0, len(ids), _PER_SCANCEL)
        ]
        return not any(one.is_late or commands.is_unreachable(one.err) for one in answers)

    async def ending(self, job: Job) -> Ending:
        """Why a job has ended: Slurm's word, and the last lines that it has printed."""
        exit_told, printed, within_s = "", "", self._deadlines.cause_s
        if job.row is not None and job.row.state == "FAILED":
            shown = await self._commands.run(commands.show_job(job.id), deadline_s=within_s)
            exit_told = commands.exit_in(shown.out)
        if not job.is_pending:
            file = commands.output_file(self.folder, job.name, job.number)
            printed = (await self._commands.run(commands.tail(file), deadline_s=within_s)).out
        lines = last_lines(printed.replace(started.SIGN.decode(), ""))
        return Ending(
            cause=started.advised(jobs.end_of(job, exit_told, lines)),
            is_unreached=exit_told == commands.exit_status(started.UNREACHED),
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
    kill_wait_s = commands.kill_wait_in(config)
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
