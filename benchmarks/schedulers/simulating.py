"""How long a simulated study takes, and the cost of a decision by the number of trials."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from benchmarks.measure import MIB, OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_SIMULATION_S = 60.0
_REPORTS_PER_S, _OTHER_REPORTS_PER_S = 50_000.0, 20_000.0
_SCHEDULERS = {"ASHA": "asha", "PBT": "pbt", "BOHB": "bohb"}
# Of the time for a report, from a thousand trials to a hundred thousand.
_GROWTH = 1.3
# Three times the reports take no more memory, except what the allocator leaves unused.
_FLAT = 1.1
# Choosing a node takes longer than counting.
_WITH_NODES = 1.2


def measure(bench: Bench) -> list[Row]:
    return [*_simulations(bench), *_memory(bench), *_decisions(bench), *_nodes(bench)]


def _simulations(bench: Bench) -> list[Row]:
    trials, workers, epochs = bench.size(10_000, 30), bench.size(1000, 5), bench.size(81, 9)
    kinds = {
        "FIFO": ("fifo", 0),
        "FIFO, a checkpoint each epoch": ("fifo", 1),
        "ASHA": ("asha", 0),
    }
    samples = bench.interleaved(
        {
            name: partial(_simulate, trials, workers, epochs, scheduler, every)
            for name, (scheduler, every) in kinds.items()
        }
    )
    size = f"{trials:,} trials x {epochs} epochs on {workers:,} workers"
    return [
        Row(
            work=f"simulation of {size}, {name}: CPU of its one thread",
            unit="s",
            ours=[told["cpu_s"] for told in tolds],
            # A checkpoint each epoch doubles the events.
            goal=None if kinds[name][1] else Goal(of="ours", bound=_SIMULATION_S),
        )
        for name, tolds in samples.items()
    ]


def _memory(bench: Bench) -> list[Row]:
    trials, workers, epochs = bench.size(2000, 30), bench.size(500, 5), bench.size(27, 3)
    samples = bench.interleaved(
        {
            OURS: partial(_simulate, trials, workers, 3 * epochs, "fifo", 1),
            REFERENCE: partial(_simulate, trials, workers, epochs, "fifo", 1),
        }
    )
    grown = {
        name: [max(told["memory"], 1) / MIB for told in found] for name, found in samples.items()
    }
    return [
        Row(
            work=f"memory of {trials:,} simulated trials, {3 * epochs} epochs",
            unit="MiB",
            ours=grown[OURS],
            reference=grown[REFERENCE],
            reference_name=f"{epochs} epochs",
            goal=Goal(of="ratio", bound=_FLAT),
        )
    ]


def _decisions(bench: Bench) -> list[Row]:
    sizes = [bench.size(size, size // 50) for size in (1000, 10_000, 100_000)]
    few, _, many = sizes
    count = bench.size(60_000, 400)
    samples = bench.interleaved(
        {
            f"{name} {size} {collects}": partial(_decide, scheduler, size, count, collects)
            for name, scheduler in _SCHEDULERS.items()
            for size, collects in [*((size, 1) for size in sizes), (many, 0)]
        }
    )
    medians = {
        name: [median(told["report_s"]) for told in tolds] for name, tolds in samples.items()
    }
    rates = [
        Row(
            work=f"reports decided by the machine with {name}, {size:,} trials alive",
            unit="/s",
            ours=[1 / taken for taken in medians[f"{name} {size} 1"]],
            goal=Goal(
                of="ours",
                bound=_REPORTS_PER_S if name == "ASHA" else _OTHER_REPORTS_PER_S,
                at_least=True,
            ),
        )
        for name in _SCHEDULERS
        for size in sizes
    ]
    growth = [
        Row(
            work=f"the machine's time for a report with {name}, {many:,} trials alive",
            unit="µs",
            ours=[1e6 * taken for taken in medians[f"{name} {many} 1"]],
            reference=[1e6 * taken for taken in medians[f"{name} {few} 1"]],
            reference_name=f"{few:,}",
            goal=Goal(of="ratio", bound=_GROWTH),
        )
        for name in _SCHEDULERS
    ]
    # The collector's passes fall into few batches, so that a median leaves them out.
    collected = [
        Row(
            work=f"the mean of all reports with {name}, {many:,} trials alive",
            unit="µs",
            ours=[1e6 * told["mean_s"] for told in samples[f"{name} {many} 1"]],
            reference=[1e6 * told["mean_s"] for told in samples[f"{name} {many} 0"]],
            reference_name="without the garbage collector",
        )
        for name in _SCHEDULERS
    ]
    return [*rates, *growth, *collected, _floor(bench, few, many)]


def _floor(bench: Bench, few: int, many: int) -> Row:
    """What grows by itself: among many trials, each record lies in no cache."""
    count = bench.size(60_000, 400)
    samples = bench.interleaved(
        {
            OURS: partial(_replace, many, count),
            REFERENCE: partial(_replace, few, count),
        }
    )
    return Row(
        work=f"a loop that only replaces the records of trials that report, {many:,} trials",
        unit="µs",
        ours=samples[OURS],
        reference=samples[REFERENCE],
        reference_name=f"{few:,}",
    )


def _nodes(bench: Bench) -> list[Row]:
    nodes, trials = bench.size(1000, 3), bench.size(30_000, 60)
    samples = bench.interleaved(
        {
            OURS: partial(_decide_on_nodes, nodes, trials, 1),
            REFERENCE: partial(_decide_on_nodes, nodes, trials, 0),
        }
    )
    return [
        Row(
            work=f"the machine's time for an event: {nodes:,} nodes of 10 workers, random losses",
            unit="µs",
            ours=samples[OURS],
            reference=samples[REFERENCE],
            reference_name="one machine with as many workers, as many lost",
            goal=Goal(of="ratio", bound=_WITH_NODES),
        )
    ]


def _decide_on_nodes(nodes: int, trials: int, known: int) -> float:
    told = finish(script("fleet/deciding_nodes", nodes, 10, trials, known)).told
    return 1e6 * float(told["cpu_s"]) / int(told["events"])


def _simulate(trials: int, workers: int, epochs: int, scheduler: str, every: int) -> Any:
    return finish(script("schedulers/simulated", trials, workers, epochs, scheduler, every)).told


def decide(scheduler: str, alive: int, reports: int) -> float:
    """CPU seconds for a report: the median of batches, because other processes slow some down."""
    taken: list[float] = _decide(scheduler, alive, reports, 1)["report_s"]
    return median(taken)


def _decide(scheduler: str, alive: int, reports: int, collects: int) -> Any:
    return finish(script("schedulers/deciding", scheduler, alive, reports, collects)).told


def _replace(trials: int, reports: int) -> float:
    taken: list[float] = finish(script("schedulers/replacing", trials, reports)).told
    return 1e6 * median(taken)
