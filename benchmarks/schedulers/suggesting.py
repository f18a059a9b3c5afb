"""The CPU time that `AutoSearch` takes for a suggestion, with 10 parameters."""

from __future__ import annotations

from functools import partial

from benchmarks.measure import Bench, finish, script
from benchmarks.rows import Goal, Row

_GOAL = Goal(of="ours", bound=0.02)
# Whether the run has a time limit, and whether trials are stopped early.
_KINDS = {
    "trained to the end": (0, 0),
    "with a time limit": (1, 0),
    "with a time limit and early stopping": (1, 1),
}


def measure(bench: Bench) -> list[Row]:
    counts = [100] if bench.quick else [100, 1000]
    samples = bench.interleaved(
        {
            f"CPU time per suggestion of AutoSearch, the last 100 of {count} trials, {kind}":
            partial(_cpu_s, count, *terms)
            for count in counts
            for kind, terms in _KINDS.items()
        }
    )  # fmt: skip
    return [Row(work=work, unit="s", ours=found, goal=_GOAL) for work, found in samples.items()]


def _cpu_s(count: int, is_timed: int, are_stopped: int) -> float:
    command = script("schedulers/suggesting", count, is_timed, are_stopped)
    return float(finish(command).told["cpu_s"])
