"""Results of a million rows, in a new process that loads the experiment."""

from __future__ import annotations

from functools import partial

from benchmarks.measure import OURS, Bench, finish, script
from benchmarks.prepared import prepare
from benchmarks.rows import Goal, Row
from benchmarks.scripts.restores.reading import READERS

_GOAL = Goal(of="ours", bound=5.0)


def measure(bench: Bench) -> list[Row]:
    trials, rows = bench.size(10_000, 60), bench.size(100, 10)
    experiment = bench.scratch() / "experiment"
    prepare(experiment, done=trials, rows=rows)
    found = []
    for what in READERS:
        read = partial(finish, script("restores/reading", experiment, what))
        samples = bench.interleaved({OURS: read})[OURS]
        work = f"{what}, {trials * rows:,} rows of {trials:,} trials"
        found += [
            Row(work=work, unit="s", ours=[one.told["took_s"] for one in samples], goal=_GOAL),
            Row(work=f"CPU of {work}", unit="s", ours=[one.cpu_s for one in samples]),
        ]
    return found
