"""`report()` with a checkpoint to local storage, compared with `cp -r` of the same files."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.measure import MIB, OURS, REFERENCE, Bench, finish, script, settle
from benchmarks.rows import Goal, Row

_RATIO = Goal(of="ratio", bound=1.3)
_P99_RATIO = Goal(of="ratio", bound=1.5)
# Each is staged while the uploader forces the one before to the disk.
_IN_A_ROW = 6
_STAGED = "staged"


def measure(bench: Bench) -> list[Row]:
    folder = bench.scratch()
    large = bench.size(256, 2)
    many = bench.size(1000, 20)
    sources = {
        f"{large} MiB": one_file(folder / "large", large),
        "1 MiB": one_file(folder / "small", 1),
        f"{many:,} x 4 KiB": small_files(folder / "many", many),
    }
    return [
        *(row for size, source in sources.items()
          for row in _rows(bench, f"checkpoint of {size}", source)),
        *(row for size, source in sources.items()
          for row in _behind(bench, f"checkpoint of {size} behind another", source)),
    ]  # fmt: skip


def one_file(folder: Path, size_mib: int) -> Path:
    """A directory with a file of random bytes."""
    folder.mkdir()
    with (folder / "model.bin").open("wb") as file:
        for _ in range(size_mib):
            file.write(os.urandom(MIB))
    return folder


def small_files(folder: Path, count: int) -> Path:
    """A directory with files of 4 KiB."""
    folder.mkdir()
    for number in range(count):
        (folder / f"part-{number:04d}").write_bytes(os.urandom(4096))
    return folder


def _rows(bench: Bench, work: str, source: Path) -> list[Row]:
    samples = bench.interleaved(
        {
            OURS: partial(_report_s, bench, source, "copied"),
            REFERENCE: partial(_cp_s, bench, source),
            _STAGED: partial(_report_s, bench, source, _STAGED),
        },
        warm=True,
    )
    ways = ((OURS, "from_directory()"), (_STAGED, "staging_directory()"))
    return [
        Row(
            work=f"{work}, {way}",
            unit="ms",
            ours=[1000 * seconds for seconds in samples[name]],
            reference=[1000 * seconds for seconds in samples[REFERENCE]],
            reference_name="cp -r",
            goal=_RATIO,
        )
        for name, way in ways
    ]


def _behind(bench: Bench, work: str, source: Path) -> list[Row]:
    samples = bench.interleaved(
        {
            OURS: partial(_in_a_row_s, bench, source),
            REFERENCE: partial(_copies_s, bench, source),
        },
        warm=True,
    )
    ours, copies = (
        [1000 * seconds for taken in samples[name] for seconds in taken]
        for name in (OURS, REFERENCE)
    )
    return [
        Row(
            work=f"{work}, {name}",
            unit="ms",
            ours=shape(ours),
            reference=shape(copies),
            reference_name="cp -r, alone",
            goal=goal,
        )
        for name, shape, goal in (("median", list, _RATIO), ("p99", _p99, _P99_RATIO))
    ]


def _p99(samples: Sequence[float]) -> list[float]:
    return [sorted(samples)[int(0.99 * len(samples))]]


def _in_a_row_s(bench: Bench, source: Path) -> list[float]:
    storage = bench.scratch()
    out = storage / "told"
    finish(script("storage/checkpoints_in_a_row", storage, source, _IN_A_ROW, out))
    taken: list[float] = json.loads(out.read_text())
    settle()
    return taken


def _copies_s(bench: Bench, source: Path) -> list[float]:
    return [_cp_s(bench, source) for _ in range(_IN_A_ROW - 1)]


def _report_s(bench: Bench, source: Path, way: str) -> float:
    storage = bench.scratch()
    return report_s(str(storage), source, way, storage / "told")


def report_s(storage: str, source: Path, way: str, out: Path, **environ: str) -> float:
    """Seconds until `report()` with a checkpoint of `source` returns."""
    finish(script("storage/checkpoint", storage, source, way, out), **environ)
    seconds = float(out.read_text())
    settle()
    return seconds


def _cp_s(bench: Bench, source: Path) -> float:
    folder = bench.scratch()
    began_s = time.monotonic()
    subprocess.run(["cp", "-r", source, folder / "copy"], check=True)
    seconds = time.monotonic() - began_s
    settle()
    return seconds
