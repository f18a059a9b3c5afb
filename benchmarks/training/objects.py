"""The memory of an object that several trials read at once, compared with the object itself."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import MIB, Bench, finish, script
from benchmarks.rows import Goal, Row

_READERS = 4
_MOST_GIB = 1.1
# A GiB is written each time: two runs show whether the figure is reliable.
_MOST_RUNS = 3


def measure(bench: Bench) -> list[Row]:
    size_mib = bench.size(1024, 16)
    told = [_shared(bench, size_mib) for _ in range(min(bench.runs, _MOST_RUNS))]
    goal = None if bench.quick else Goal(of="ours", bound=_MOST_GIB)
    return [
        Row(
            work=f"memory (PSS) of all processes, {_READERS} trials read an object of "
            f"{size_mib:,} MiB",
            unit="GiB",
            ours=[found["pss"] / MIB / 1024 for found in told],
            goal=goal,
        ),
        Row(
            work=f"put() of an array of {size_mib:,} MiB",
            unit="MiB/s",
            ours=[size_mib / found["put_s"] for found in told],
            reference=[size_mib / found["write_s"] for found in told],
            reference_name="a plain file in the same place",
        ),
        Row(
            work="get() of it in a trial",
            unit="ms",
            ours=[1000 * found["get_s"] for found in told],
        ),
    ]


def _shared(bench: Bench, size_mib: int) -> dict[str, Any]:
    found: dict[str, Any] = finish(
        script("training/shared_object", bench.scratch(), size_mib, _READERS)
    ).told
    return found
