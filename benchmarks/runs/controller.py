"""The controller's CPU for one report, with few and many trials alive and done."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.measure import Bench, finish, script
from benchmarks.prepared import prepare
from benchmarks.rows import Goal, Row

_FLAT = Goal(of="ratio", bound=1.25)


def measure(bench: Bench) -> list[Row]:
    few, many = (2, 10), (bench.size(200, 8), bench.size(10_000, 100))
    sizes = [(alive, done) for done in (few[1], many[1]) for alive in (few[0], many[0])]
    count = bench.size(4000, 200)
    samples = bench.interleaved(
        {_name(*size): partial(waiting, bench, *size, count) for size in sizes}
    )
    per_report = {
        name: [1e6 * told["cpu_s"] / count for told in tolds] for name, tolds in samples.items()
    }
    first = _name(*few)
    return [
        Row(
            work=f"controller's CPU for a report, {name}",
            unit="µs",
            ours=ours,
            reference=() if name == first else per_report[first],
            reference_name=first,
            goal=None if name == first else _FLAT,
        )
        for name, ours in per_report.items()
    ]


def waiting(bench: Bench, alive: int, done: int, count: int) -> Any:
    """The output of `scripts/waiting.py` for an experiment with `done` finished trials."""
    storage = bench.scratch()
    prepare(storage / "experiment", done=done, rows=1, more=alive)
    return finish(script("runs/waiting", storage / "experiment", alive, count)).told


def _name(alive: int, done: int) -> str:
    return f"{alive} trials alive, {done:,} done"
