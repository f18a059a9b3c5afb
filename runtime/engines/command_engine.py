"""Engines that run one command on this machine for each agent: Python itself, or `ssh` and the
like.

The command first says that it runs (`started.py`), and only then reads its invitation. From then
on its stdin and stdout belong to the host of the engine if the agent talks over them. Its last
lines are kept for the cause of its end. Where an agent has ended, the engine tries again.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import FileIO
from typing import Final, cast

from holdfast.dataclass import dataclass
from holdfast.forked import close_in_children
from holdfast.late import Timer
from holdfast.names import printable
from holdfast.runtime import process_control
from holdfast.runtime.engines import started
from holdfast.runtime.engines import supply as seating
from holdfast.runtime.engines.engine import EngineFailed, EngineHost, NodeKind, Offer
from holdfast.runtime.engines.started import SIGN, UNHEARD, UNREACHED, advised, not_started
from holdfast.runtime.engines.supply import Seat
from holdfast.runtime.launcher import describe_code, job_cause
from holdfast.runtime.process_exits import Watched, abandon, on_end
from holdfast.runtime.tasks import happens
from holdfast.version import VERSION

_CHUNK_BYTES = 1 << 16
# A login shell may print this much before the agent starts.
_MOST_NOISE = 1 << 20
_KEPT_BYTES = 2000
_KEPT_LINES = 10
# An agent that exits with an error so soon was of no use, as one that was refused.
_SOON_S = 10.0
# The status of an agent that lost its controller, of ssh if the connection failed, and of srun or
# a shell if the agent was killed.
_LOST = frozenset({UNHEARD, 255, 128 + signal.SIGKILL, 128 + signal.SIGTERM})
# Runs a command that the kernel kills with the process that started it. 1 is PR_SET_PDEATHSIG.
_DIES_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command that runs an agent. In messages, `where` is the place, and `short` the command if
    it is shown without some options. The agent must say within `answer_s` that it runs.

    `is_elsewhere`: the command only leads to the place, as ssh does. The kernel then kills it with
    this process (Linux), and to kill it does not end the agent.
    `ends_its_agent`: the command has a second process that ends the agent when the first one is
    killed, as srun has. It also passes on the end of its stdin, so it may outlive this process.
    """

    where: str
    command: Sequence[str]
    environ: Mapping[str, str]
    over_pipe: bool
    answer_s: float
    is_elsewhere: bool = False
    ends_its_agent: bool = False
    short: Sequence[str] = ()

    @property
    def shown(self) -> str:
        """The command on one line."""
        return printable(shlex.join(self.short or self.command))


@dataclass(frozen=True, slots=True)
class AgentPipe:
    """The descriptors of an agent's stdout and stdin."""

    reads: int
    writes: int


class LastLines:
    """The end of what a process has printed."""

    def __init__(self) -> None:
        self._kept = b""

    def add(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_KEPT_BYTES:]

    def all(self) -> list[str]:
        text = self._kept.replace(SIGN, b"").decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return [printable(line) for line in lines[-_KEPT_LINES:]]


class AgentProcess:
    """A job's process. `on_started` is called once with its pipe, when it says that it runs;
    `on_ended` once, with the cause and whether the agent had worked, as the last call."""

    def __init__(
        self,
        job: Job,
        invitation: bytes,
        on_started: Callable[[AgentPipe | None], None],
        on_ended: Callable[[str, bool], None],
    ) -> None:
        """Raises OSError if the command cannot be started."""
        self._job = job
        self._invitation = invitation
        self._on_started = on_started
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._lines = LastLines()
        self._noise = b""
        self._started_at: float | None = None
        self._ordered = ""
        self._process = _start(job)
        self._stdin, self._stdout, stderr = _ours(self._process)
        self._readers = {self._stdout: self._hear, stderr: self._lines.add}
        for file in self._readers:
            self._loop.add_reader(file.fileno(), self._read, file)
        self._timer = Timer(self._loop, job.answer_s, self._give_up)
        self._stop_watch = on_end(self._process, self._ended)
        close_in_children(self)

    @property
    def is_elsewhere(self) -> bool:
        return self._job.is_elsewhere

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, why: str, within_s: float) -> None:
        """End it: at once if its agent has not begun, else within this time by itself, because the
        host has ordered the agent to. Whoever reads its stdin sees the end of it."""
        if not self._ordered:
            self._ordered = why
            self._stdin.close()
            self._timer.cancel()
            if self._started_at is None:
                self.kill(why)
            else:
                late = f"{why}, and it did not end within {within_s:g} s"
                self._timer = Timer(self._loop, within_s, partial(self.kill, late))

    def kill(self, why: str) -> None:
        """Send SIGKILL to its process group, without a second process that ends the agent."""
        self._ordered = why
        if self._job.ends_its_agent:
            self._process.kill()
        else:
            process_control.kill_group(self._process.pid)

    def abandon(self) -> str:
        """Stop waiting for a process that survived SIGKILL. Returns a warning about it."""
        self._stop_watch()
        warning = abandon(self._process)
        self._close(f"{self._job.where}: the process {warning}", False)
        return warning

    def _give_up(self) -> None:
        self.kill(not_started(self._job.answer_s))

    def close_in_child(self) -> None:
        for file in (self._stdin, *self._readers):
            file.close()

    def _read(self, file: FileIO) -> bool:
        """Read once. Returns whether there may be more."""
        try:
            data = file.read(_CHUNK_BYTES)
        except OSError:
            data = b""
        if data is None:  # nothing for now
            return False
        if data:
            self._readers[file](data)
        else:
            self._stop_reading(file)
        return file in self._readers

    def _stop_reading(self, file: FileIO) -> None:
        self._loop.remove_reader(file.fileno())
        del self._readers[file]
        file.close()

    def _hear(self, data: bytes) -> None:
        """Look for the sign in what it has printed. Nothing can follow the sign before the
        invitation was written."""
        self._lines.add(data)
        if self._started_at is not None or self._ordered:
            return
        self._noise += data
        if SIGN in self._noise:
            self._begin()
        elif len(self._noise) > _MOST_NOISE:
            self.kill(f"it printed more than {_MOST_NOISE:,} bytes before the agent started")

    def _begin(self) -> None:
        self._started_at = self._loop.time()
        self._noise = b""
        self._timer.cancel()
        try:
            written = self._stdin.write(self._invitation)
        except OSError:  # it has just ended
            return
        if written != len(self._invitation):
            self.kill(f"it took only {written or 0:,} bytes of its invitation")
        else:
            self._on_started(self._hand_over() if self._job.over_pipe else None)

    def _hand_over(self) -> AgentPipe:
        pipe = AgentPipe(os.dup(self._stdout.fileno()), os.dup(self._stdin.fileno()))
        self._stop_reading(self._stdout)
        self._stdin.close()
        return pipe

    def _ended(self) -> None:
        for file in list(self._readers):
            while self._read(file):
                pass
        code = self._process.poll() or 0
        self._close(self._cause(code), self._has_worked(code))

    def _has_worked(self, code: int) -> bool:
        if self._started_at is None or code == UNREACHED:
            return False
        was_lost = code <= 0 or code in _LOST
        return was_lost or self._loop.time() - self._started_at >= _SOON_S

    def _cause(self, code: int) -> str:
        if self._ordered and code == -signal.SIGKILL:
            how = f"was killed by holdfast: {self._ordered}"
        elif self._ordered and code == 0:
            how = self._ordered
        else:
            how = describe_code(code)
        return advised(job_cause(self._job.where, self._job.shown, how, self._lines.all()))

    def _close(self, cause: str, worked: bool) -> None:
        self._timer.cancel()
        self._stdin.close()
        for file in list(self._readers):
            self._stop_reading(file)
        self._on_ended(cause, worked)


def _start(job: Job) -> subprocess.Popen[bytes]:
    """The process, in a session of its own: a Ctrl-C does not reach it."""
    prefix: list[str] = []
    if job.is_elsewhere and not job.ends_its_agent and sys.platform == "linux":
        prefix = [sys.executable, "-I", "-S", "-c", _DIES_WITH_PARENT, str(os.getpid())]
    return subprocess.Popen(
        [*prefix, *job.command],
        bufsize=0,
        env=dict(job.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _ours(process: subprocess.Popen[bytes]) -> tuple[FileIO, FileIO, FileIO]:
    """This end of its stdin, stdout and stderr."""
    files = process.stdin, process.stdout, process.stderr
    for file in files:
        assert isinstance(file, FileIO)
        os.set_blocking(file.fileno(), False)
    return cast(tuple[FileIO, FileIO, FileIO], files)


# The part of the time to close that is left for what has to be killed.
_FOR_KILLS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long to wait, in seconds: for an agent to start, if only silence says that it does not;
    for one that was ordered to end; and before the second attempt at the same place."""

    answer_s: float = 60.0
    end_s: float = 10.0
    rest_s: float = seating.REST_S


# What to do about words of ssh and of the node's system.
_REMEDIES: Final[Mapping[str, str]] = {
    "Permission denied": "`ssh HOST true` must work without a password: set up a key. Write "
    "USER@HOST if the user has another name there",
    "Host key verification failed": "Log in once by hand (`ssh HOST`): ssh then asks whether the "
    "host's key is right",
    "Connection refused": "No ssh server listens there: start it, or name its port as HOST:PORT",
    "Connection timed out": "The host does not answer: is it up, and reachable from here?",
    "Could not resolve hostname": "Correct the name of the host, or add it to ~/.ssh/config",
    "No space left on device": "Free space on the node, or name a folder on another disk: "
    "scratch=... of the cluster",
}


def none_started(causes: Sequence[str]) -> str:
    """The error of an engine none of whose agents has ever worked."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    named = f"A node needs {python} with holdfast {VERSION}: python=... of the cluster names the "
    found = [remedy for words, remedy in _REMEDIES.items() if any(words in one for one in causes)]
    remedies = found or [f"{named}interpreter there"]
    return "\n".join(["No agent could be started.", *causes, *remedies])


class SeatedEngine(ABC):
    """Implements `holdfast.runtime.engines.engine.Engine`.

    It refuses when each seat was tried and no agent has ever worked. Otherwise it tries again,
    and says what it waits for.
    """

    def __init__(self, kinds: Sequence[NodeKind], seats: Sequence[Seat], times: Times) -> None:
        self._kinds = tuple(kinds)
        self._seats = {seat.name: seat for seat in seats}
        self.times = times
        self._wanted: dict[str, int] = {}
        self._running: dict[str, AgentProcess] = {}  # by the name of the seat
        self._timer: asyncio.TimerHandle | None = None
        self._waits = ""
        self._is_closing = False
        self._all_ended = asyncio.Event()

    @abstractmethod
    def job_at(self, seat: str) -> Job:
        """The job that runs an agent at the seat of this name."""

    @property
    def tickets(self) -> list[str]:
        """Those of the agents that run."""
        return [seat.ticket for seat in self._seats.values() if seat.ticket]

    def refuse(self, why: str) -> None:
        """The engine can supply no nodes any more."""
        if self._is_closing:
            return
        self._stop()
        for process in list(self._running.values()):
            process.end("no agent could be started", self.times.end_s)
        self._host.refused(why)

    def offer(self) -> Offer:
        return Offer(kinds=self._kinds)

    async def open(self, host: EngineHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()

    def want(self, kind: str, count: int) -> None:
        if kind not in {known.name for known in self._kinds}:
            raise ValueError(f"there are no nodes of the kind {kind!r}")
        if self._wanted.get(kind, 0) != count:
            self._wanted[kind] = count
            self._plan()

    def ask(self, ticket: str) -> None:  # noqa: B027
        """The end of each command is noticed by itself."""

    def give_back(self, ticket: str) -> None:
        for seat in list(self._seats.values()):
            if ticket and seat.ticket == ticket:
                self._seats[seat.name] = seating.given_back(seat)
                self._running[seat.name].end("was given back", self.times.end_s)
                self._plan()

    def processes(self) -> list[Watched]:
        return [
            Watched(process.pid, f"the process of {name}", process.kill)
            for name, process in self._running.items()
        ]

    def kill(self) -> None:
        self._stop()
        for process in self._running.values():
            process.kill("the run was aborted")

    async def close(self, grace_s: float) -> str:
        self._stop()
        for name, process in list(self._running.items()):
            if process.is_elsewhere and self._seats[name].is_leaving:
                # A lost node's ssh may not know of the loss. Its agent ends without it.
                process.kill("was given back")
            else:
                process.end("the run ended", grace_s)
        if await self._have_ended(grace_s * (1 - _FOR_KILLS)):
            return ""
        late = [name for name, process in self._running.items() if process.is_elsewhere]
        self.kill()
        if not await self._have_ended(grace_s * _FOR_KILLS):
            return "; ".join(process.abandon() for process in list(self._running.values()))
        if not late:
            return ""
        return f"the agents at {', '.join(late)} did not end in time, and may still run"

    async def _have_ended(self, within_s: float) -> bool:
        self._all_ended.clear()
        return not self._running or await happens(self._all_ended, within_s)

    def _stop(self) -> None:
        """Start nothing any more."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()

    def _plan(self) -> None:
        """Start what is due, in turns of the loop, and look again when more may be."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_closing:
            return
        now = self._loop.time()
        if seating.due(self._seats.values(), self._wanted, now):
            self._timer = self._loop.call_later(0, self._start_next)
            return
        due = seating.next_due(self._seats.values(), self._wanted, now)
        if due is not None:
            self._timer = self._loop.call_at(due, self._plan)

    def _start_next(self) -> None:
        now = self._loop.time()
        for seat in seating.due(self._seats.values(), self._wanted, now)[:1]:
            self._start(seat, now)
        self._plan()

    def _start(self, seat: Seat, now: float) -> None:
        job = self.job_at(seat.name)
        try:
            invitation = self._host.invite(seat.kind, over_pipe=job.over_pipe)
        except EngineFailed as error:
            self.refuse(str(error))
            return
        self._seats[seat.name] = seating.taken(seat, invitation.ticket, now)
        try:
            self._running[seat.name] = AgentProcess(
                job,
                invitation.secret,
                partial(self._on_started, seat.name),
                partial(self._on_ended, seat.name),
            )
        except OSError as error:
            cause = f"{job.where}: `{job.shown}` cannot be run: {error}"
            self._on_ended(seat.name, cause, False)

    def _on_started(self, name: str, pipe: AgentPipe | None) -> None:
        seat = self._seats[name] = seating.working(self._seats[name])
        self._tell_what_is_missing()
        if pipe is not None:
            self._host.attach(seat.ticket, pipe)

    def _on_ended(self, name: str, cause: str, worked: bool) -> None:
        self._running.pop(name, None)
        seat = self._seats[name]
        self._seats[name] = seating.freed(
            seat, self._loop.time(), cause, worked=worked, rest_s=self.times.rest_s
        )
        self._host.gone(seat.ticket, cause)
        if not self._running:
            self._all_ended.set()
        if self._is_closing:
            return
        if seating.are_hopeless(list(self._seats.values()), self._wanted):
            causes = [seat.cause for seat in self._seats.values() if seat.cause]
            self.refuse(none_started(causes))
        else:
            self._tell_what_is_missing()
            self._plan()

    def _tell_what_is_missing(self) -> None:
        """Say once which seats are tried again and again."""
        found = seating.failing(self._seats.values(), self._wanted)
        text = "; ".join(seating.failing_text(seat) for seat in found)
        if text != self._waits:
            self._waits = text
            self._host.waits(text)


KIND = "local"


class LocalEngine(SeatedEngine):
    """`agents` agents on this machine, which connect to the controller over TLS, or talk over
    their stdin and stdout with `over_pipe`.

    Each counts as a node with these `resources`. The GPUs of this machine, by the names that
    CUDA_VISIBLE_DEVICES has for them, are split among the agents.
    """

    def __init__(
        self,
        *,
        agents: int = 2,
        resources: Mapping[str, float] | None = None,
        gpu_names: Sequence[str] = (),
        over_pipe: bool = False,
        python: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        module: str = "holdfast.agent",
        times: Times | None = None,
    ) -> None:
        """`resources` are those of each agent; None if it finds out itself. `python` is the
        command of the interpreter; this one if it is empty. `variables` are set for agents, in
        addition to `environ`."""
        self._command = (*(python or (sys.executable,)), "-m", started.MODULE, module, "-")
        self._environ = {**(os.environ if environ is None else environ), **(variables or {})}
        self._gpu_names = tuple(gpu_names)
        self._over_pipe = over_pipe
        self._numbers = {f"agent {number}": number - 1 for number in range(1, agents + 1)}
        super().__init__(
            [NodeKind(name=KIND, resources=resources, most=agents)],
            [Seat(name=name, kind=KIND) for name in self._numbers],
            times or Times(),
        )

    def job_at(self, seat: str) -> Job:
        return Job(
            where=seat,
            command=self._command,
            environ={**self._environ, **self._gpus(self._numbers[seat])},
            over_pipe=self._over_pipe,
            answer_s=self.times.answer_s,
        )

    def _gpus(self, number: int) -> dict[str, str]:
        """The environment that shows an agent its share of the GPUs."""
        if not self._gpu_names:
            return {}
        share = len(self._gpu_names) // len(self._numbers)
        names = self._gpu_names[number * share : (number + 1) * share]
        return {"CUDA_VISIBLE_DEVICES": ",".join(names)}
