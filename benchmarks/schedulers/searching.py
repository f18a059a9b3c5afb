"""How long workers wait for a slow search that may look ahead, and for one that may not."""

from __future__ import annotations

from functools import partial

from benchmarks.measure import Bench, finish, script
from benchmarks.rows import Goal, Row

# A tenth of a search of 0.5 s, and of trials of 45 s: what counts is their ratio.
_THINKS_S, _LASTS_S = 0.1, 9.0
_IDLE = Goal(of="ratio", bound=0.2)
_NONE = "none"
_SHARES = {_NONE: 0.0, "an eighth of the running trials": 0.125, "as many as run": 1.0}


def measure(bench: Bench) -> list[Row]:
    workers = bench.size(64, 4)
    samples = bench.interleaved(
        {name: partial(_idle, bench, share, workers) for name, share in _SHARES.items()}
    )
    return [
        Row(
            work=f"idle time of {workers} workers, {_THINKS_S:g} s per suggestion, trials of "
            f"{_LASTS_S:g} s; suggested ahead: {name}",
            unit="",
            ours=found,
            reference=samples[_NONE],
            reference_name=_NONE,
            goal=_IDLE,
        )
        for name, found in samples.items()
        if name != _NONE
    ]


def _idle(bench: Bench, share: float, workers: int) -> float:
    lasts_s = 0.5 if bench.quick else _LASTS_S
    command = script("schedulers/searching", share, workers, _THINKS_S, lasts_s, bench.scratch())
    return float(finish(command).told["idle"])
