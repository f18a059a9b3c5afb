"""How much the script's memory grows with its trials, and the memory of a waiting worker."""

from __future__ import annotations

from functools import partial
from statistics import mean, median

from benchmarks.measure import MIB, OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row
from benchmarks.runs.controller import waiting

_SCRIPT_MIB = 60.0
_WORKER_MIB = 20.0
_FEW, _MANY = "few", "many"


def measure(bench: Bench) -> list[Row]:
    return [*_done(bench, bench.size(1000, 40)), *_alive(bench, bench.size(100, 6))]


def _done(bench: Bench, count: int) -> list[Row]:
    samples = bench.interleaved(
        {
            OURS: partial(_rss, bench, count),
            REFERENCE: partial(_rss, bench, 0),
            _MANY: partial(_rss, bench, 2 * count),
        }
    )
    imports = median(samples[REFERENCE])
    return [
        Row(
            work=f"memory of the script beyond its imports, {count:,} trials done",
            unit="MiB",
            ours=[(rss - imports) / MIB for rss in samples[OURS]],
            goal=Goal(of="ours", bound=_SCRIPT_MIB),
        ),
        Row(
            work=f"memory of the script per trial done, {count:,} to {2 * count:,}",
            unit="KiB",
            ours=_slopes(samples[OURS], samples[_MANY], count),
        ),
    ]


def _alive(bench: Bench, count: int) -> list[Row]:
    samples = bench.interleaved(
        {
            _FEW: partial(waiting, bench, 2, 2, 0),
            _MANY: partial(waiting, bench, count, 2, 0),
        }
    )
    few, many = ([told["rss"] for told in samples[name]] for name in (_FEW, _MANY))
    return [
        Row(
            work=f"memory of the script per running trial, 2 to {count}",
            unit="KiB",
            ours=_slopes(few, many, count - 2),
        ),
        Row(
            work="memory of a waiting worker's own (USS)",
            unit="MiB",
            ours=[mean(told["uss"]) / MIB for told in samples[_FEW]],
            goal=Goal(of="ours", bound=_WORKER_MIB),
        ),
    ]


def _slopes(few: list[int], many: list[int], more: int) -> list[float]:
    return [(after - before) / more / 1024 for before, after in zip(few, many, strict=True)]


def _rss(bench: Bench, count: int) -> int:
    storage = bench.scratch()
    rss: int = finish(script("runs/memory", storage, count)).told["rss"]
    return rss
