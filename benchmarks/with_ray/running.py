"""A run of the compared script by one of the two, with all the processes that it starts."""

from __future__ import annotations

import json
import os
import resource
import secrets
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import MIB, SCRIPTS, ScriptFailed, environment

_SCRIPT = SCRIPTS / "with_ray.py"
_TELL_S = 600.0
# Ray's daemons end after its script, those of a killed script too.
_LEAVE_S = 15.0
_ENVIRON = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Otherwise Ray writes one to ~/.ray.
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    # As Ray's do by default, if tensorboardX is there.
    "HOLDFAST_TENSORBOARD": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two: its name, and the command that runs a script of Ray's names."""

    name: str
    command: Sequence[str | Path]


class Running:
    """A script that runs. `running()` starts and ends it."""

    def __init__(
        self, process: subprocess.Popen[bytes], meeting: socket.socket, log: Path
    ) -> None:
        self.began_s = time.monotonic()
        self.pid = process.pid
        self._process = process
        self._meeting = meeting
        self._log = log
        self._held: list[socket.socket] = []

    def next(self) -> dict[str, Any]:
        """The next line that a trial or the script sends. Raises ScriptFailed if none comes."""
        pidfd = os.pidfd_open(self.pid)
        try:
            ready, _, _ = select.select([self._meeting.fileno(), pidfd], [], [], _TELL_S)
        finally:
            os.close(pidfd)
        if self._meeting.fileno() not in ready:
            ended = f"did not answer within {_TELL_S:g} s" if not ready else "ended too early"
            raise ScriptFailed(f"the script {ended}:\n{self._tail()}")
        connection, _ = self._meeting.accept()
        self._held.append(connection)
        with connection.makefile() as file:
            told: dict[str, Any] = json.loads(file.readline())
        return told

    def all(self, count: int) -> list[dict[str, Any]]:
        return [self.next() for _ in range(count)]

    def release(self) -> None:
        """End the connections that trials wait for."""
        for connection in self._held:
            connection.close()
        self._held.clear()

    def finish(self) -> None:
        """Wait for the script's end. Raises ScriptFailed."""
        self.release()
        try:
            status = self._process.wait(_TELL_S)
        except subprocess.TimeoutExpired as error:
            raise ScriptFailed(f"did not end within {_TELL_S:g} s:\n{self._tail()}") from error
        if status:
            raise ScriptFailed(f"the script ended with {status}:\n{self._tail()}")

    def pss_mib(self) -> list[float]:
        """The memory of the script's process, then of each other process."""
        processes = [psutil.Process(self.pid), *_descendants(self.pid)]
        found = []
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                found.append(process.memory_full_info().pss / MIB)
        return found

    def cpu_s(self) -> float:
        """CPU time of all processes so far, with those that have ended."""
        times = []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                times.append(process.cpu_times())
        return sum(t.user + t.system + t.children_user + t.children_system for t in times)

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


@contextmanager
def running(
    side: Side, work: str, *, storage: Path, short: Path, **settings: Any
) -> Iterator[Running]:
    """Run the script. At the end nothing that it started is left.

    `short` is a folder with a short path: the address of a Unix socket has at most 107 characters.
    """
    path, log = short / "meeting", short / "log"
    path.unlink(missing_ok=True)
    environ = environment(**_ENVIRON, RAY_TMPDIR=str(short), MEETING=str(path))
    command = [*side.command, str(_SCRIPT), work, str(storage), json.dumps(_filled(settings))]
    with socket.socket(socket.AF_UNIX) as meeting, log.open("wb") as output:
        meeting.bind(str(path))
        meeting.listen(4096)  # most lines are read only after the last was sent
        process = subprocess.Popen(
            command, env=environ, cwd=storage, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        run = Running(process, meeting, log)
        try:
            yield run
        finally:
            run.release()
            if process.poll() is None:
                process.kill()
            process.wait()
            end_descendants()


def children_cpu_s(measured: Callable[[], None]) -> float:
    """CPU time of the processes that `measured` starts and that have ended by its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def end_descendants() -> None:
    """Wait until all that was started has ended; end by pid whatever does not.

    Orphans are children of this process, which has called `adopt_orphans`.
    """
    for ask in (None, psutil.Process.terminate, psutil.Process.kill):
        left = psutil.Process().children(recursive=True)
        if ask is not None:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    ask(process)
        psutil.wait_procs(left, timeout=_LEAVE_S)
    with suppress(ChildProcessError):  # orphans that psutil has not seen
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants(pid: int) -> list[psutil.Process]:
    """All processes but this one and `pid`: Ray's daemons are no descendants of its script."""
    return [one for one in psutil.Process().children(recursive=True) if one.pid != pid]


def _filled(settings: dict[str, Any]) -> dict[str, Any]:
    return {"trials": 1, "cpus": os.cpu_count(), "config": {}, "reuse": False, "failures": 0,
            **settings}  # fmt: skip
