"""A process of `holdfast web`, or of another page's server: where it listens, what it uses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.measure import MIB, ScriptFailed, environment
from holdfast.dataclass import dataclass

_ENDS_S = 20.0
_HERTZ = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """`began_s` is read from the monotonic clock just before the start."""

    pid: int
    url: str
    began_s: float

    @property
    def cpu_s(self) -> float:
        """CPU time of the process so far, in seconds."""
        return cpu_of(self.pid)

    @property
    def since_start_s(self) -> float:
        """Seconds since `began_s`."""
        return time.monotonic() - self.began_s

    @property
    def memory_mib(self) -> float:
        """Its memory now (PSS), in MiB."""
        return memory_of([self.pid])


@contextmanager
def holdfast_web(path: Path) -> Iterator[Server]:
    """Serve a place or an experiment. Yields when a browser can connect."""
    command = [sys.executable, "-m", "holdfast", "web", "--json", str(path)]
    with _process(command) as (process, began_s):
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise ScriptFailed(f"{' '.join(command)} ended with {process.wait()}")
        yield Server(pid=process.pid, url=json.loads(line)["url"], began_s=began_s)


@contextmanager
def _process(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], float]]:
    began_s = time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            yield process, began_s
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_ENDS_S)


def cpu_of(pid: int) -> float:
    """The CPU seconds that a process has used so far, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HERTZ


def memory_of(pids: Sequence[int]) -> float:
    """The memory (PSS) of these processes together, in MiB."""
    return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / MIB
