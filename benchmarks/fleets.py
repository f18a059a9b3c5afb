"""Reports from nodes: the controller's CPU for one of them with 10,000 workers, and the round trip
of a trial on a node compared with one next to the script."""

from __future__ import annotations

import json
from functools import partial

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_CPU = Goal(of="ours", bound=70.0)
_ROUND_TRIP = Goal(of="ratio", bound=2.5)
_NODE = "local://?agents=1"


def measure(bench: Bench) -> list[Row]:
    return [_cpu(bench), _round_trip(bench)]


def _cpu(bench: Bench) -> Row:
    agents, workers, count = bench.size(100, 3), bench.size(100, 3), bench.size(10, 5)
    samples = bench.interleaved({OURS: partial(_simulated, bench, agents, workers, count)})
    return Row(
        work=f"controller's CPU for a report, {agents} agents of {workers} workers over TLS",
        unit="µs",
        ours=samples[OURS],
        goal=_CPU,
    )


def _simulated(bench: Bench, agents: int, workers: int, count: int) -> float:
    told = finish(script("fleet_reports", bench.scratch(), agents, workers, count)).told
    return 1e6 * float(told["cpu_s"]) / (agents * workers * count)


def _round_trip(bench: Bench) -> Row:
    count = bench.size(5000, 100)
    samples = bench.interleaved(
        {
            OURS: partial(_report, bench, count, HOLDFAST_CLUSTER=_NODE),
            REFERENCE: partial(_report, bench, count),
        }
    )
    return Row(
        work="report() of a trial on a node, over TLS",
        unit="µs",
        ours=samples[OURS],
        reference=samples[REFERENCE],
        reference_name="on the controller's machine",
        goal=_ROUND_TRIP,
    )


def _report(bench: Bench, count: int, **environ: str) -> float:
    """Microseconds of a report of the only trial."""
    storage = bench.scratch()
    told = storage / "told"
    told.mkdir()
    finish(script("reports", "holdfast", storage, 1, count, told), **environ)
    (file,) = told.iterdir()
    began_s, ended_s = map(float, json.loads(file.read_text()))
    return 1e6 * (ended_s - began_s) / count
