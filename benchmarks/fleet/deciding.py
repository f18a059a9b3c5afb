"""The machine's time for an event with 1,000 nodes of 10 workers, compared with one machine."""

from __future__ import annotations

from functools import partial

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_WORKERS = 10
_RATIO = Goal(of="ratio", bound=1.2)


def measure(bench: Bench) -> list[Row]:
    nodes = bench.size(1000, 10)
    trials = bench.size(20_000, 200)
    samples = bench.interleaved(
        {
            OURS: partial(_event_us, nodes, trials, known=True),
            REFERENCE: partial(_event_us, nodes, trials, known=False),
        }
    )
    return [
        Row(
            work=f"an event of the machine, {nodes:,} nodes of {_WORKERS}, lost at random",
            unit="µs",
            ours=samples[OURS],
            reference=samples[REFERENCE],
            reference_name=f"{nodes * _WORKERS:,} workers of one machine, lost as often",
            goal=_RATIO,
        )
    ]


def _event_us(nodes: int, trials: int, *, known: bool) -> float:
    told = finish(script("fleet/deciding_nodes", nodes, _WORKERS, trials, int(known))).told
    if not told["lost"]:
        raise AssertionError("no node was lost")
    events = sum(int(count) for count in told["kinds"].values())
    return 1e6 * float(told["cpu_s"]) / events
