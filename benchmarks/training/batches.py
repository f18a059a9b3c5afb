"""Batches of tensors from a dataset, compared with torch's DataLoader over the same Arrow data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_LOADERS: Mapping[str, str] = {
    "table": "a table in memory, in order",
    "shuffled": "a table in memory, shuffled",
    "files": "Parquet files, in order",
}
_BATCH_ROWS = 256


def measure(bench: Bench) -> list[Row]:
    return [_row(bench, which, told) for which, told in _LOADERS.items()]


def _row(bench: Bench, which: str, told: str) -> Row:
    samples = bench.interleaved(
        {
            name: partial(_speed, bench, which, library, bench.scratch())
            for name, library in ((OURS, "holdfast"), (REFERENCE, "torch"))
        }
    )
    return Row(
        work=f"iter_torch_batches of {_BATCH_ROWS} rows, {told}",
        unit="rows/ms",
        ours=samples[OURS],
        reference=samples[REFERENCE],
        reference_name="torch's DataLoader over the same",
        goal=Goal(of="ratio", bound=0.9, at_least=True),
    )


def _speed(bench: Bench, which: str, library: str, folder: Path) -> float:
    rows = bench.size(500_000, 5_000)
    command = script(
        "training/batches", which, library, folder, rows, _BATCH_ROWS, python=sys.executable
    )
    return float(finish(command).told)
