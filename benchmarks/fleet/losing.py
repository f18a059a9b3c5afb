"""The loss of one of 100 nodes with 100 trials."""

from __future__ import annotations

from functools import partial

from benchmarks.measure import OURS, Bench, finish, script
from benchmarks.rows import Goal, Row
from holdfast.runtime.fleet.facts import FleetSettings

_LOOP_S = 0.5


def measure(bench: Bench) -> list[Row]:
    agents, workers = bench.size(100, 3), bench.size(100, 3)
    lost = bench.interleaved({OURS: partial(_lost, bench, agents, workers)})[OURS]
    work = f"loss of 1 of {agents} nodes with {workers} trials"
    beats_s = 2 * FleetSettings().heartbeat_s
    return [
        Row(
            work=f"{work}: the loop is busy",
            unit="s",
            ours=[loop_s for loop_s, _ in lost],
            goal=Goal(of="ours", bound=_LOOP_S),
        ),
        Row(
            work=f"{work}: from its last beat until they are queued again",
            unit="s",
            ours=[silent_s for _, silent_s in lost],
            goal=Goal(of="ours", bound=beats_s),
        ),
    ]


def _lost(bench: Bench, agents: int, workers: int) -> tuple[float, float]:
    told = finish(script("fleet/fleet_loss", bench.scratch(), agents, workers)).told
    if told["requeued"] != workers:
        raise AssertionError(f"{told['requeued']} of {workers} trials were queued again")
    return float(told["loop_s"]), float(told["silent_s"])
