"""Reports of trials that wait for each acknowledgement, compared with a bare echo between
processes."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_ECHO = "a bare echo of msgpack over a socket pair"
_TWO = "two trials"
_RATIO = Goal(of="ratio", bound=0.7, at_least=True)
_RATIO_OF_TWO = Goal(of="ratio", bound=1.5, at_least=True)


def measure(bench: Bench) -> list[Row]:
    count = bench.size(20_000, 500)
    rays = bench.size(1000, 50)
    samples = bench.interleaved(
        {
            OURS: partial(_reports, bench, "holdfast", 1, count, sys.executable),
            REFERENCE: partial(_echoes, count),
            _TWO: partial(_reports, bench, "holdfast", 2, count, sys.executable),
        }
    )
    return [
        Row(
            work="reports of one trial, each in the journal",
            unit="/s",
            ours=samples[OURS],
            reference=samples[REFERENCE],
            reference_name=_ECHO,
            ray=bench.with_ray(partial(_reports, bench, "ray", 1, rays)),
            goal=_RATIO,
        ),
        Row(
            work="reports of two trials together",
            unit="/s",
            ours=samples[_TWO],
            reference=samples[OURS],
            reference_name="one trial",
            ray=bench.with_ray(partial(_reports, bench, "ray", 2, rays)),
            goal=_RATIO_OF_TWO,
        ),
    ]


def _reports(bench: Bench, library: str, trials: int, count: int, python: str) -> float:
    """Reports per second, from the start of the first trial to the end of the last."""
    storage = bench.scratch()
    told = storage / "told"
    told.mkdir()
    finish(script("runs/reports", library, storage, trials, count, told, python=python))
    spans = [json.loads(path.read_text()) for path in _all(told, trials)]
    began_s = min(float(began) for began, _ in spans)
    ended_s = max(float(ended) for _, ended in spans)
    return trials * count / (ended_s - began_s)


def _all(told: Path, trials: int) -> list[Path]:
    files = list(told.iterdir())
    if len(files) != trials:
        raise AssertionError(f"{len(files)} of {trials} trials reported their times")
    return files


def _echoes(count: int) -> float:
    rate: float = finish(script("runs/bare_echo", count)).told["rate"]
    return rate
