"""The CPU of the terminal view while 1,000 trials run, compared with no view.

The thread of `fit()` gets the same events with the view and without, in a terminal of 120 columns
and 40 lines that is read as fast as it writes.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.measure import Bench, ScriptFailed, environment, script
from benchmarks.rows import Goal, Row

_GOAL = Goal(of="ours", bound=1.0)
_SECONDS = 10
_SCENES: Mapping[str, int] = {
    "16 of them at work": 16,
    "all of them at work": 1000,
}


def measure(bench: Bench) -> list[Row]:
    return [_scene(bench, what, alive) for what, alive in _SCENES.items()]


def _scene(bench: Bench, what: str, alive: int) -> Row:
    taken = bench.interleaved(
        {view: partial(_percent, bench, alive, view) for view in ("live", "none")}
    )
    return Row(
        work=f"the terminal view with 1,000 trials, {what}, of one core",
        unit="%",
        ours=[
            max(0.0, shown - unseen)
            for shown, unseen in zip(taken["live"], taken["none"], strict=True)
        ],
        goal=_GOAL,
    )


def _percent(bench: Bench, alive: int, view: str) -> float:
    """CPU time of the process as a percentage of its running time."""
    out = bench.scratch() / "told"
    _in_terminal(script("runs/watched", bench.size(_SECONDS, 1), alive, view, out))
    told: dict[str, Any] = json.loads(out.read_text())
    return 100 * float(told["cpu_s"]) / float(told["ran_s"])


def _in_terminal(command: list[str]) -> None:
    """Run a command whose output is a terminal. Raises ScriptFailed."""
    outside, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environ = environment(TERM="xterm-256color", COLORTERM="truecolor")
    shown: list[bytes] = []
    reader = threading.Thread(target=_read, args=(outside, shown))
    process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environ)
    os.close(inside)
    reader.start()
    status = process.wait()
    reader.join()
    os.close(outside)
    if status:
        text = b"".join(shown)[-3000:].decode(errors="replace")
        raise ScriptFailed(f"{' '.join(command)} ended with {status}:\n{text}")


def _read(terminal: int, shown: list[bytes]) -> None:
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the other side is closed
            return
        if not data:
            return
        shown.append(data)
