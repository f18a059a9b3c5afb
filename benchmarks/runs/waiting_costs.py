"""What a run costs that waits: 64 trials that report once a minute, in a terminal and in a pipe.

CPU, wake-ups (voluntary context switches of living threads) and bytes are the kernel's counts of
all processes of the run together. write(2) also gets what holdfast sends through sockets, which
the reference sends otherwise. A file that grows by a line dirties a block of 4 KiB, so the disk
gets far more than that. The reference is the same work in bare forks, at the same time.
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
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.measure import Bench, ScriptFailed, environment, script
from benchmarks.rows import Goal, Row

_CPU = Goal(of="ours", bound=0.1)
_WRITTEN = Goal(of="ours", bound=1000.0)
_TRIALS, _START_S, _MEASURED_S = 64, 75.0, 120.0
_ENDS_WITHIN_S = 120.0
_BARE = "bare forks"
# Who wakes up, by the words of the title of a process.
_KINDS = ("projector", "sampler", "warm parent", "trial")
_CONTROLLER = "the script"
# From include/linux/posix-timers.h: a clock of a process, with the threads that have ended.
_PROCESS_CLOCK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of all processes together: seconds of CPU, wake-ups by kind of process, bytes for the disk,
    bytes passed to write(2), bytes of their files."""

    cpu_s: float
    wakes: Mapping[str, float]
    disk: float
    passed: float
    files: float

    def rate(self, before: Counts, seconds: float) -> Counts:
        """Per second, since an earlier look."""
        kinds = {kind: count - before.wakes.get(kind, 0) for kind, count in self.wakes.items()}
        return Counts(
            cpu_s=(self.cpu_s - before.cpu_s) / seconds,
            wakes={kind: count / seconds for kind, count in kinds.items()},
            disk=(self.disk - before.disk) / seconds,
            passed=(self.passed - before.passed) / seconds,
            files=(self.files - before.files) / seconds,
        )


def measure(bench: Bench) -> list[Row]:
    rows = []
    for place in ("in a pipe", "in a terminal"):
        pairs = [_run(bench, is_terminal=place == "in a terminal") for _ in range(bench.runs)]
        ours, bare = [one for one, _ in pairs], [other for _, other in pairs]
        work = f"{bench.size(_TRIALS, 4)} trials that report once a minute, {place}: "
        rows += [
            Row(work=f"{work}CPU, of one core", unit="%", goal=_CPU, reference_name=_BARE,
                ours=[100 * one.cpu_s for one in ours],
                reference=[100 * one.cpu_s for one in bare]),
            Row(work=f"{work}wake-ups", unit="/s", reference_name=_BARE,
                ours=[sum(one.wakes.values()) for one in ours],
                reference=[sum(one.wakes.values()) for one in bare]),
            *_wakes_by_kind(work, ours),
            Row(work=f"{work}growth of the files", unit="B/s", goal=_WRITTEN, reference_name=_BARE,
                ours=[one.files for one in ours],
                reference=[one.files for one in bare]),
            Row(work=f"{work}passed to write(2)", unit="B/s", reference_name=_BARE,
                ours=[one.passed for one in ours],
                reference=[one.passed for one in bare]),
            Row(work=f"{work}blocks for the disk", unit="B/s", goal=_WRITTEN, reference_name=_BARE,
                ours=[one.disk for one in ours],
                reference=[one.disk for one in bare]),
        ]  # fmt: skip
    return rows


def _wakes_by_kind(work: str, ours: Sequence[Counts]) -> list[Row]:
    return [
        Row(
            work=f"{work}wake-ups of {kind}",
            unit="/s",
            ours=[one.wakes.get(kind, 0.0) for one in ours],
        )
        for kind in (_CONTROLLER, *_KINDS)
    ]


def _run(bench: Bench, *, is_terminal: bool) -> tuple[Counts, Counts]:
    """Counts per second after the first minute: of holdfast, and of the reference."""
    start_s, measured_s = (8.0, 5.0) if bench.quick else (_START_S, _MEASURED_S)
    arguments = bench.size(_TRIALS, 4), start_s + measured_s + 5.0
    outside, inside = pty.openpty() if is_terminal else os.pipe()
    if is_terminal:
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with ExitStack() as ends:
        ends.callback(os.close, outside)
        shown: list[bytes] = []
        reader = threading.Thread(target=_read, args=(outside, shown))
        scripts = ("runs/waiting_trials", "runs/bare_waiting")
        folders = [bench.scratch() for _ in scripts]
        started = [
            _start(name, [folder, *arguments], inside, ends)
            for name, folder in zip(scripts, folders, strict=True)
        ]
        works = list(zip(started, folders, strict=True))
        os.close(inside)
        ends.callback(reader.join)
        reader.start()
        time.sleep(start_s)
        began_s, before = time.monotonic(), [_counts(one.pid, folder) for one, folder in works]
        time.sleep(measured_s)
        after = [_counts(one.pid, folder) for one, folder in works]
        took_s = time.monotonic() - began_s
        for process in started:
            if status := process.wait(_ENDS_WITHIN_S):
                text = b"".join(shown)[-3000:].decode(errors="replace")
                raise ScriptFailed(f"{process.args!r} ended with {status}:\n{text}")
    ours, bare = (now.rate(then, took_s) for now, then in zip(after, before, strict=True))
    return ours, bare


def _start(
    name: str, arguments: Sequence[object], output: int, ends: ExitStack
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        script(name, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment(TERM="xterm-256color", COLORTERM="truecolor"),
    )
    ends.callback(process.wait)
    ends.callback(process.kill)
    return process


def _counts(root: int, folder: Path) -> Counts:
    parent = psutil.Process(root)
    pids = [root, *(child.pid for child in parent.children(recursive=True))]
    wakes: Counter[str] = Counter()
    for pid in pids:
        states = [_table(each / "status") for each in Path(f"/proc/{pid}/task").iterdir()]
        kind = _CONTROLLER if pid == root else _kind_of(pid)
        wakes[kind] += sum(int(state.get("voluntary_ctxt_switches", 0)) for state in states)
    ios = [_table(Path(f"/proc/{pid}/io")) for pid in pids]
    return Counts(
        cpu_s=sum(time.clock_gettime(~pid << 3 | _PROCESS_CLOCK) for pid in pids),
        wakes=wakes,
        disk=sum(int(io["write_bytes"]) for io in ios),
        passed=sum(int(io["wchar"]) for io in ios),
        files=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    )


def _kind_of(pid: int) -> str:
    title = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return next((kind for kind in _KINDS if f"holdfast: {kind} " in title), "others")


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
