"""What is over in less than a second, with its results in a bucket: a run of one trial, and
a command that looks at it. The server is moto, on the same machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Row
from tests.rig.storage.s3_server import S3Server, make_bucket, moto_server

_BUCKET, _RUNS = "bench", "runs"


def measure(bench: Bench) -> list[Row]:
    with moto_server() as server:
        make_bucket(server, _BUCKET)
        uri = server.uri(f"{_BUCKET}/{_RUNS}")
        run = _seconds(
            bench,
            "a script with one trial and its results in a bucket",
            lambda: _trial(bench, uri),
            lambda: _trial(bench, str(bench.scratch())),
            "in a local directory",
        )
        ls = _seconds(
            bench,
            "`holdfast ls` of a bucket",
            lambda: [sys.executable, "-m", "holdfast", "ls", uri],
            lambda: _listing(server),
            "a script that lists the folder with aiobotocore",
        )
        return [run, ls]


def _trial(bench: Bench, storage: str) -> Sequence[str]:
    return script("runs/one_trial", "holdfast", storage, bench.scratch() / "out")


def _listing(server: S3Server) -> Sequence[str]:
    given = server.endpoint, server.access_key, server.secret_key, _BUCKET, f"{_RUNS}/"
    return script("storage/listing", *given)


def _seconds(
    bench: Bench,
    work: str,
    ours: Callable[[], Sequence[str]],
    reference: Callable[[], Sequence[str]],
    name: str,
) -> Row:
    taken = bench.interleaved(
        {OURS: lambda: _wall_s(bench, ours), REFERENCE: lambda: _wall_s(bench, reference)},
        warm=True,
    )
    return Row(
        work=work, unit="s", ours=taken[OURS], reference=taken[REFERENCE], reference_name=name
    )


def _wall_s(bench: Bench, command: Callable[[], Sequence[str]]) -> float:
    return finish(command(), RAY_AIR_LOCAL_CACHE_DIR=str(bench.scratch())).wall_s
