"""`report()` with a checkpoint that goes to S3, compared with local storage."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from uuid import uuid4

from benchmarks.measure import OURS, REFERENCE, Bench
from benchmarks.rows import Goal, Row
from benchmarks.storage.checkpoints import one_file, report_s, small_files
from tests.rig.storage.s3_server import S3Server, make_bucket, moto_server

_BUCKET = "bench"
# The uploads of a script's other files compete for the CPU, and a report takes milliseconds.
_NOT_WAITING = Goal(of="ratio", bound=1.5)


def measure(bench: Bench) -> list[Row]:
    folder = bench.scratch()
    with moto_server() as server:
        make_bucket(server, _BUCKET)
        large, many = bench.size(64, 1), bench.size(400, 10)
        sources = {
            f"checkpoint of {large} MiB to S3": one_file(folder / "large", large),
            f"checkpoint of {many:,} x 4 KiB to S3": small_files(folder / "many", many),
        }
        return [_row(bench, server, work, source) for work, source in sources.items()]


def _row(bench: Bench, server: S3Server, work: str, source: Path) -> Row:
    samples = bench.interleaved(
        {
            OURS: partial(_remote_s, bench, server, source),
            REFERENCE: partial(_local_s, bench, source),
        },
        warm=True,
    )
    return Row(
        work=f"{work}, report()",
        unit="ms",
        ours=[1000 * seconds for seconds in samples[OURS]],
        reference=[1000 * seconds for seconds in samples[REFERENCE]],
        reference_name="to local storage",
        goal=_NOT_WAITING,
    )


def _remote_s(bench: Bench, server: S3Server, source: Path) -> float:
    storage = server.uri(f"{_BUCKET}/{uuid4().hex}")
    local = bench.scratch()
    cache = {"RAY_AIR_LOCAL_CACHE_DIR": str(local)}
    return report_s(storage, source, "copied", local / "told", **cache)


def _local_s(bench: Bench, source: Path) -> float:
    storage = bench.scratch()
    return report_s(str(storage), source, "copied", storage / "told")
