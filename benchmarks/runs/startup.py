"""From the start of a script with one trial to its first acknowledged report, and to its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_FIRST_REPORT_S = 0.6
_WHOLE_S = 1.0


def measure(bench: Bench) -> list[Row]:
    contenders: dict[str, Callable[[], tuple[float, float]]] = {
        OURS: partial(_one_trial, bench, "holdfast", sys.executable),
        REFERENCE: _bare,
    }
    samples = bench.interleaved(contenders, warm=True)
    rays = bench.with_ray(partial(_one_trial, bench, "ray"))
    works = (
        ("process start to first acknowledged report", _FIRST_REPORT_S),
        ("whole script with one trial", _WHOLE_S),
    )
    return [
        Row(
            work=work,
            unit="s",
            ours=[sample[at] for sample in samples[OURS]],
            reference=[sample[at] for sample in samples[REFERENCE]],
            reference_name="python -c pass",
            ray=[sample[at] for sample in rays],
            goal=Goal(of="ours", bound=bound_s),
        )
        for at, (work, bound_s) in enumerate(works)
    ]


def _one_trial(bench: Bench, library: str, python: str) -> tuple[float, float]:
    """Seconds to the first report, and to the end."""
    storage = bench.scratch()
    command = script("runs/one_trial", library, storage, storage / "reported", python=python)
    done = finish(command)
    reported_s = float((storage / "reported").read_text())
    return reported_s - done.began_s, done.wall_s


def _bare() -> tuple[float, float]:
    done = finish([sys.executable, "-c", "pass"])
    return done.wall_s, done.wall_s
