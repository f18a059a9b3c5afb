"""The process of an agent, started by a command: Python itself, or `ssh` and the like.

The command first says that it runs (`started.py`), and only then reads its invitation. From then
on its stdin and stdout belong to the host of the engine if the agent talks over them. Its last
lines are kept for the cause of its end.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import FileIO
from typing import cast

from holdfast.dataclass import dataclass
from holdfast.forked import close_in_children
from holdfast.late import Timer
from holdfast.names import printable
from holdfast.runtime import process_control
from holdfast.runtime.engines.engine import Pipe
from holdfast.runtime.engines.started import SIGN, UNHEARD, UNREACHED, advised, not_started
from holdfast.runtime.launcher import describe_code, job_cause
from holdfast.runtime.process_exits import abandon, on_end

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
    """A command that runs an agent. In messages, `where` is the place ("" if others add it), and
    `short` the command if it is shown without some options. The agent must say within `answer_s`
    that it runs.

    `dies_with_parent`: the kernel kills it with this process (Linux).
    `ends_its_agent`: the command has a second process that ends the agent when the first one is
    killed, as srun has.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    answer_s: float
    where: str = ""
    over_pipe: bool = False
    dies_with_parent: bool = False
    ends_its_agent: bool = False
    short: Sequence[str] = ()

    @property
    def shown(self) -> str:
        """The command on one line."""
        return printable(shlex.join(self.short or self.command))


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
        on_started: Callable[[Pipe | None], None],
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
        self._readers = {self._stdout: self._take_output, stderr: self._lines.add}
        for file in self._readers:
            self._loop.add_reader(file.fileno(), self._read, file)
        self._timer = Timer(self._loop, job.answer_s, self._give_up)
        self._stop_watch = on_end(self._process, self._ended)
        close_in_children(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, why: str, within_s: float) -> None:
        """End it: at once if its agent has not begun, else within this time by itself, because the
        host has ordered the agent to. The agent sees the end of its stdin."""
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

    def _take_output(self, data: bytes) -> None:
        """Find the sign in what it has printed. Nothing can follow the sign before the invitation
        was written."""
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

    def _hand_over(self) -> Pipe:
        pipe = Pipe(os.dup(self._stdout.fileno()), os.dup(self._stdin.fileno()))
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


def bound(command: Sequence[str]) -> list[str]:
    """The command, so that the kernel kills it with this process (Linux)."""
    if sys.platform != "linux":
        return [*command]
    return [sys.executable, "-I", "-S", "-c", _DIES_WITH_PARENT, str(os.getpid()), *command]


def _start(job: Job) -> subprocess.Popen[bytes]:
    """The process, in a session of its own: a Ctrl-C does not reach it."""
    return subprocess.Popen(
        bound(job.command) if job.dies_with_parent else job.command,
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
