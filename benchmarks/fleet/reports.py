"""Reports from nodes: the controller's CPU and memory with 10,000 workers, and the round trip of a
trial on a node compared with one next to the script, and with a relay that does nothing else."""

from __future__ import annotations

import json
from functools import partial

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_CPU = Goal(of="ours", bound=70.0)
_ROUND_TRIP = Goal(of="ratio", bound=2.5)
_MEMORY = Goal(of="ours", bound=150.0)
_RELAY = "an echo through a relay over TLS that does nothing else"
_NODE = "local://?agents=1"


def measure(bench: Bench) -> list[Row]:
    return [*_many(bench), *_round_trip(bench)]


def _many(bench: Bench) -> list[Row]:
    agents, workers, count = bench.size(100, 3), bench.size(100, 3), bench.size(10, 5)
    simulate = partial(_simulated, bench, agents, workers, count)
    samples = bench.interleaved({OURS: simulate})[OURS]
    size = f"{agents} agents of {workers} workers over TLS"
    return [
        Row(
            work=f"controller's CPU for a report, {size}",
            unit="µs",
            ours=[cpu_us for cpu_us, _ in samples],
            goal=_CPU,
        ),
        Row(
            work=f"peak memory of the controller above its imports, {count} reports, {size}",
            unit="MB",
            ours=[grown_mb for _, grown_mb in samples],
            goal=_MEMORY,
        ),
    ]


def _simulated(bench: Bench, agents: int, workers: int, count: int) -> tuple[float, float]:
    told = finish(script("fleet/fleet_reports", bench.scratch(), agents, workers, count)).told
    reports = agents * workers * count
    return 1e6 * float(told["cpu_s"]) / reports, float(told["grown_kib"]) * 1024 / 1e6


def _round_trip(bench: Bench) -> list[Row]:
    count = bench.size(5000, 100)
    samples = bench.interleaved(
        {
            OURS: partial(_report, bench, count, HOLDFAST_CLUSTER=_NODE),
            REFERENCE: partial(_report, bench, count),
            _RELAY: partial(_bare, "fleet/bare_relay", count),
        }
    )
    return [
        Row(
            work="report() of a trial on a node, over TLS",
            unit="µs",
            ours=samples[OURS],
            reference=samples[REFERENCE],
            reference_name="on the controller's machine",
            goal=_ROUND_TRIP,
        ),
        Row(
            work="the same",
            unit="µs",
            ours=samples[OURS],
            reference=samples[_RELAY],
            reference_name=_RELAY,
        ),
    ]


def _report(bench: Bench, count: int, **environ: str) -> float:
    """Microseconds of a median report of the only trial."""
    storage = bench.scratch()
    finish(script("fleet/round_trips", storage, count, storage / "told"), **environ)
    return 1e6 * float(json.loads((storage / "told").read_text()))


def _bare(name: str, count: int) -> float:
    return 1e6 * float(finish(script(name, count)).told["round_trip_s"])
