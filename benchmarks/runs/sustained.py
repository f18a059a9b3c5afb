"""Reports for a minute, from the first one until the last is in its file: few and many trials,
and beside other work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.measure import Bench, finish, script
from benchmarks.rows import Goal, Row

_BUSY = 2
_CPU = Goal(of="ours", bound=90.0)
_ALIVE = (1, 16, 200)


def measure(bench: Bench) -> list[Row]:
    alive = _ALIVE if not bench.quick else (1, 4)
    samples = bench.interleaved(
        {
            _name(trials, is_busy): partial(_sustained, bench, trials, is_busy)
            for trials, is_busy in [*((trials, False) for trials in alive), (alive[1], True)]
        }
    )
    return [row for name, tolds in samples.items() for row in _rows(name, tolds)]


def _name(trials: int, is_busy: bool) -> str:
    beside = f" beside {_BUSY} busy processes" * is_busy
    return f"{trials} trial{'s' * (trials > 1)} alive{beside}"


def _rows(name: str, tolds: list[Any]) -> list[Row]:
    def per_row(*costs: str) -> list[float]:
        return [1e6 * sum(told[cost] for cost in costs) / told["rows"] for told in tolds]

    return [
        Row(
            work=f"rows until all are in their files, {name}",
            unit="/s",
            ours=[told["rows"] / told["took_s"] for told in tolds],
        ),
        Row(
            work=f"CPU of controller and projector for a row, {name}",
            unit="µs",
            ours=per_row("controller_s", "projector_s"),
            goal=_CPU,
        ),
        Row(work="of these, the projector's", unit="µs", ours=per_row("projector_s")),
    ]


def _sustained(bench: Bench, trials: int, is_busy: bool) -> Any:
    seconds = bench.size(120 if bench.long else 60, 1)
    with _busy(_BUSY if is_busy else 0):
        return finish(script("runs/sustained", bench.scratch(), trials, seconds)).told


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many other processes that compute."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
