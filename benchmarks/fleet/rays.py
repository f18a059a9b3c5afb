"""Three nodes of one CPU on this machine, compared with Ray's `cluster_utils`, in turns."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

from benchmarks.measure import OURS, Bench, finish, script
from benchmarks.rows import Row

_RAY = "Ray"
_NODES = "on three nodes of this machine"


def measure(bench: Bench) -> list[Row]:
    if bench.ray_python is None:
        note = "HOLDFAST_RAY_PYTHON names no Python with Ray"
        return [Row(work=f"trials {_NODES}, compared with Ray", unit="", note=note)]
    count = bench.size(1000, 50)
    samples: dict[str, dict[str, list[Mapping[str, float]]]] = {}
    for what in ("reports", "death"):
        contenders: dict[str, Callable[[], Mapping[str, float]]] = {
            OURS: partial(_told, bench, "holdfast", sys.executable, what, count),
            _RAY: partial(_told, bench, "ray", bench.ray_python, what, count),
        }
        samples[what] = bench.interleaved(contenders)
    reports, death = samples["reports"], samples["death"]
    begun_s = median(told["started_s"] for told in reports[_RAY])
    return [
        Row(
            work=f"fit() to the first report {_NODES} (Ray's started before, in {begun_s:.1f} s)",
            unit="s",
            ours=[told["first_s"] for told in reports[OURS]],
            ray=[told["first_s"] for told in reports[_RAY]],
        ),
        Row(
            work=f"reports of three trials {_NODES}",
            unit="/s",
            ours=[told["rate"] for told in reports[OURS]],
            ray=[told["rate"] for told in reports[_RAY]],
        ),
        Row(
            work="death of a node to its trial running again",
            unit="s",
            ours=[told["again_s"] for told in death[OURS]],
            ray=[told["again_s"] for told in death[_RAY]],
        ),
    ]


def _told(bench: Bench, library: str, python: str, what: str, count: int) -> Mapping[str, float]:
    storage = bench.scratch()
    # The interface that holdfast follows.
    environ = {"RAY_TRAIN_V2_ENABLED": "0"}
    finish(script("fleet/on_nodes", library, storage, what, count, python=python), **environ)
    told: Mapping[str, float] = json.loads((storage / "told").read_text())
    return told
