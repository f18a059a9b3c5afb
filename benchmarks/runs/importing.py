"""CPU seconds of a process that imports and ends."""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.measure import OURS, REFERENCE, Bench, finish
from benchmarks.rows import Goal, Row

_LIGHT = Goal(of="ours", bound=0.15)
# Names are imported at their first use: the last line is what a script pays in the end.
_NAMES = "import tune; tune.Tuner, tune.TuneConfig, tune.report"


def measure(bench: Bench) -> list[Row]:
    return [
        _row(bench, "import holdfast", None, _LIGHT),
        _row(bench, "from holdfast import tune", "from ray import tune", _LIGHT),
        _row(bench, f"from holdfast {_NAMES}", f"from ray {_NAMES}", None),
    ]


def _row(bench: Bench, ours: str, rays: str | None, goal: Goal | None) -> Row:
    samples = bench.interleaved(
        {
            OURS: partial(_cpu_s, ours, sys.executable),
            REFERENCE: partial(_cpu_s, "pass", sys.executable),
        },
        warm=True,
    )
    return Row(
        work=f"{ours}, CPU",
        unit="s",
        ours=samples[OURS],
        reference=samples[REFERENCE],
        reference_name="python -c pass",
        ray=bench.with_ray(partial(_cpu_s, rays)) if rays else (),
        goal=goal,
    )


def _cpu_s(code: str, python: str) -> float:
    return finish([python, "-c", code]).cpu_s
