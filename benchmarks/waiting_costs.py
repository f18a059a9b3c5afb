"""What a run costs that waits: 64 trials that report once a minute, in a terminal and in a pipe.

CPU, wake-ups (voluntary context switches of living threads) and bytes are the kernel's counts of
all processes of the run together. A file that grows by a line dirties a block of 4 KiB, so the
disk gets far more than what is passed to write(2), to sockets and pipes too.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.measure import Bench, ScriptFailed, environment, script
from benchmarks.rows import Goal, Row

_CPU = Goal(of="ours", bound=0.1)
_WRITTEN = Goal(of="ours", bound=1000.0)
_TRIALS, _START_S, _MEASURED_S = 64, 75.0, 120.0
_ENDS_WITHIN_S = 120.0
# From include/linux/posix-timers.h: a clock of a process, with the threads that have ended.
_PROCESS_CLOCK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of all processes together: seconds of CPU, wake-ups, bytes for the disk, bytes passed to
    write(2)."""

    cpu_s: float
    wakes: int
    disk: int
    passed: int


def measure(bench: Bench) -> list[Row]:
    rows = []
    for place in ("in a pipe", "in a terminal"):
        taken = [_run(bench, is_terminal=place == "in a terminal") for _ in range(bench.runs)]
        work = f"{bench.size(_TRIALS, 4)} trials that report once a minute, {place}: "
        rows += [
            Row(work=f"{work}CPU, of one core", unit="%",
                ours=[100 * one.cpu_s for one in taken], goal=_CPU),
            Row(work=f"{work}wake-ups", unit="/s", ours=[one.wakes for one in taken]),
            Row(work=f"{work}passed to write(2)", unit="B/s",
                ours=[one.passed for one in taken], goal=_WRITTEN),
            Row(work=f"{work}blocks for the disk", unit="B/s",
                ours=[one.disk for one in taken], goal=_WRITTEN),
        ]  # fmt: skip
    return rows


def _run(bench: Bench, *, is_terminal: bool) -> Counts:
    """Counts per second, after the first minute."""
    start_s, measured_s = (8.0, 5.0) if bench.quick else (_START_S, _MEASURED_S)
    command = script(
        "waiting_trials", bench.scratch(), bench.size(_TRIALS, 4), start_s + measured_s + 5.0
    )
    outside, inside = pty.openpty() if is_terminal else os.pipe()
    if is_terminal:
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environ = environment(TERM="xterm-256color", COLORTERM="truecolor")
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=inside, stderr=inside, env=environ
    )
    os.close(inside)
    shown: list[bytes] = []
    reader = threading.Thread(target=_read, args=(outside, shown))
    reader.start()
    try:
        time.sleep(start_s)
        began_s, before = time.monotonic(), _counts(process.pid)
        time.sleep(measured_s)
        after, took_s = _counts(process.pid), time.monotonic() - began_s
        status = process.wait(_ENDS_WITHIN_S)
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(outside)
    if status:
        text = b"".join(shown)[-3000:].decode(errors="replace")
        raise ScriptFailed(f"{' '.join(command)} ended with {status}:\n{text}")
    return Counts(
        cpu_s=(after.cpu_s - before.cpu_s) / took_s,
        wakes=round((after.wakes - before.wakes) / took_s),
        disk=round((after.disk - before.disk) / took_s),
        passed=round((after.passed - before.passed) / took_s),
    )


def _counts(root: int) -> Counts:
    parent = psutil.Process(root)
    pids = [root, *(child.pid for child in parent.children(recursive=True))]
    threads = [each for pid in pids for each in Path(f"/proc/{pid}/task").iterdir()]
    states = [_table(each / "status") for each in threads]
    ios = [_table(Path(f"/proc/{pid}/io")) for pid in pids]
    return Counts(
        cpu_s=sum(time.clock_gettime(~pid << 3 | _PROCESS_CLOCK) for pid in pids),
        wakes=sum(int(state.get("voluntary_ctxt_switches", 0)) for state in states),
        disk=sum(int(io["write_bytes"]) for io in ios),
        passed=sum(int(io["wchar"]) for io in ios),
    )


def _table(path: Path) -> dict[str, str]:
    try:
        lines = [line.partition(":") for line in path.read_text().splitlines()]
    except OSError:  # a thread that has ended
        return {}
    return {name: value.strip() for name, _, value in lines}


def _read(descriptor: int, shown: list[bytes]) -> None:
    while True:
        try:
            data = os.read(descriptor, 1 << 16)
        except OSError:  # the other side of the terminal is closed
            return
        if not data:
            return
        shown.append(data)
