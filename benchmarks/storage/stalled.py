"""`report()` while a bucket accepts requests and does not answer, compared with local storage; and
the CPU of journal and snapshots at 1,000 reports a second."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row
from benchmarks.storage.checkpoints import small_files
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server, make_bucket, moto_server

_BUCKET = "bench"
_UNHINDERED = Goal(of="ratio", bound=1.1)
_JOURNAL = Goal(of="ours", bound=3.0)
_RATE = 1000
_SNAPSHOT_PERIOD_S = 10.0
# The queue holds 64.
_REPORTS = 60


def measure(bench: Bench) -> list[Row]:
    return [*_stalled(bench), _journal(bench)]


def _stalled(bench: Bench) -> list[Row]:
    source = small_files(bench.scratch() / "source", 4)
    with moto_server() as server:
        make_bucket(server, _BUCKET)
        samples = bench.interleaved(
            {
                OURS: partial(_reports, bench, source, server),
                REFERENCE: partial(_reports, bench, source, None),
            },
            warm=True,
        )
    shapes = (("median", median), ("p99", _p99))
    return [
        Row(
            work=f"report() with a checkpoint, its bucket stalled, {name}",
            unit="ms",
            ours=[1000 * shape(taken) for taken in samples[OURS]],
            reference=[1000 * shape(taken) for taken in samples[REFERENCE]],
            reference_name="to local storage",
            goal=_UNHINDERED,
        )
        for name, shape in shapes
    ]


def _reports(bench: Bench, source: Path, server: S3Server | None) -> list[float]:
    """Seconds of each report after the first; with a server, one that no longer answers."""
    folder = bench.scratch()
    proxy = None if server is None else Proxy(server.endpoint)
    line = socket.socket(socket.AF_UNIX)
    line.bind(str(folder / "line"))
    line.listen()
    storage, environ = str(folder / "storage"), {"RAY_AIR_LOCAL_CACHE_DIR": str(folder / "cache")}
    if server is not None and proxy is not None:
        uri = server.uri(f"{_BUCKET}/{uuid4().hex}")
        storage = uri.replace(server.endpoint, proxy.endpoint)
    else:
        environ = {}

    def stall() -> None:
        trial, _ = line.accept()
        if proxy is not None:
            proxy.stall()
        trial.sendall(b"1")
        trial.close()

    thread = threading.Thread(target=stall, daemon=True)
    thread.start()
    try:
        count = bench.size(_REPORTS, 5)
        out = folder / "told"
        finish(
            script("storage/upload_reports", storage, source, count, folder / "line", out),
            **environ,
        )
    finally:
        line.close()
        if proxy is not None:
            proxy.close()
    taken: list[float] = json.loads(out.read_text())
    return taken


def _p99(taken: Sequence[float]) -> float:
    return sorted(taken)[max(0, -(-99 * len(taken) // 100) - 1)]


def _journal(bench: Bench) -> Row:
    told: list[Any] = []
    for _ in range(bench.runs):
        storage = bench.scratch()
        told.append(finish(script("storage/journal_cost", storage, _RATE, bench.size(10, 1))).told)
    return Row(
        work=f"journal and snapshots at {_RATE:,} reports/s, of one core",
        unit="%",
        ours=[
            100 * (each["journal_s"] / each["ran_s"] + each["snapshot_s"] / _SNAPSHOT_PERIOD_S)
            for each in told
        ],
        goal=_JOURNAL,
    )
