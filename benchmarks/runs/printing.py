"""A storm of prints in a trial, compared with the same loop to a plain file."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_LINE, _BLOCK = "to a file by lines", "to a file by blocks"
_SHOWN = "shown in the terminal, too"
# Durability costs one write(2) for each line; a file that is buffered by blocks loses up to 8 KiB
# when its process is killed.
_RATIO = Goal(of="ratio", bound=2.0)


def measure(bench: Bench) -> list[Row]:
    count = bench.size(100_000, 2_000)
    kinds = {OURS: "holdfast", _SHOWN: "shown", REFERENCE: "line", _BLOCK: "block"}
    samples = bench.interleaved(
        {name: partial(_seconds, bench, kind, count) for name, kind in kinds.items()}
    )
    against: list[tuple[str, str, str, Any]] = [
        (f"{count:,} prints of a trial", OURS, REFERENCE, _RATIO),
        (f"{count:,} prints of a trial, {_SHOWN}", _SHOWN, REFERENCE, _RATIO),
        (f"{count:,} prints of a trial, compared with blocks", OURS, _BLOCK, None),
    ]
    names = {REFERENCE: f"the loop {_LINE}", _BLOCK: f"the loop {_BLOCK}"}
    return [
        Row(
            work=work,
            unit="s",
            ours=samples[ours],
            reference=samples[other],
            reference_name=names[other],
            goal=goal,
        )
        for work, ours, other, goal in against
    ]


def _seconds(bench: Bench, kind: str, count: int) -> float:
    seconds: float = finish(script("runs/printing", kind, bench.scratch(), count)).told["seconds"]
    return seconds
