"""Downloads from real S3 servers, compared with other clients that download the same objects.

As for uploads (`uploads.py`), the servers run on the same machine and are the limit, and each
download runs in its own process. holdfast's one also lists the checkpoint, reads its manifest, and
compares the checksum of each file with it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks.measure import MIB, Bench, finish, script
from benchmarks.rows import Goal, Row
from benchmarks.storage import uploads
from benchmarks.storage.checkpoints import one_file, small_files
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import for_each
from tests.rig.storage.s3_server import S3Server, has_seaweed

_OURS, _CALLED = "holdfast", "holdfast-checkpoint"
_RAW = ("aiobotocore", "boto3-crt", "obstore")
_NEEDS = {"boto3-crt": "awscrt"}
# rclone answers a range with 200, which obstore does not accept.
_UNABLE = {("rclone", "obstore")}
_AS_FAST = Goal(of="ratio", bound=0.9, at_least=True)
_PARALLEL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    name: str
    source: Path
    mebibytes: float


def measure(bench: Bench) -> list[Row]:
    """With `--long`, of 10 GB and 10,000 files."""
    works = _works(bench)
    rows: list[Row] = []
    for name in [*(["seaweed"] if has_seaweed() else []), "rclone"]:
        with uploads.SERVERS[name](bench) as (server, _):
            for work in works:
                rows += _rows(bench, name, server, work)
    return rows


def _works(bench: Bench) -> list[_Work]:
    folder = bench.scratch()
    large = 10_000 if bench.long else bench.size(1024, 20)
    many = 10_000 if bench.long else bench.size(2000, 20)
    works = [
        _Work(
            name=f"1 x {large:,} MiB", source=one_file(folder / "large", large), mebibytes=large
        ),
        _Work(
            name=f"{many:,} x 4 KiB",
            source=small_files(folder / "many", many),
            mebibytes=many / 256,
        ),
    ]
    for work in works:
        manifest.write(work.source)
    return works


def _rows(bench: Bench, at: str, server: S3Server, work: _Work) -> list[Row]:
    prefix = work.source.name
    asyncio.run(_fill(server, prefix, work.source))
    raw = [
        name
        for name in _RAW
        if find_spec(_NEEDS.get(name, name))
        and not ((at, name) in _UNABLE and work.source.name == "large")
    ]
    samples = bench.interleaved(
        {
            name: partial(_download, bench, server, name, prefix, work.source)
            for name in (_OURS, _CALLED, *raw)
        }
    )
    best = min(raw, key=lambda name: median(sample.wall_s for sample in samples[name]))
    title = f"{work.name} from {at}"

    def row(
        what: str,
        unit: str,
        shape: Callable[[uploads.Sample], float],
        reference: str = best,
        ours: str = _OURS,
        goal: Goal | None = None,
    ) -> Row:
        return Row(
            work=f"{title}, {what}",
            unit=unit,
            ours=_shaped(samples[ours], shape),
            reference=_shaped(samples[reference], shape),
            reference_name=reference,
            goal=goal,
        )

    rows = [
        row("throughput", "MiB/s", lambda sample: work.mebibytes / sample.wall_s, goal=_AS_FAST),
        row("CPU", "s", _cpu),
        row("largest resident memory", "MiB", lambda sample: sample.rss / MIB),
    ]
    rows += [row(f"CPU compared with {name}", "s", _cpu, name) for name in raw if name != best]
    rows.append(row("CPU of Checkpoint.to_directory", "s", _cpu, ours=_CALLED))
    return rows


def _shaped(
    samples: Sequence[uploads.Sample], shape: Callable[[uploads.Sample], float]
) -> list[float]:
    return [shape(sample) for sample in samples]


def _cpu(sample: uploads.Sample) -> float:
    return sample.cpu_s


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def _fill(server: S3Server, prefix: str, source: Path) -> None:
    store = Location.resolve(server.uri(uploads.BUCKET), None, {}).open_store()

    async def put(path: Path) -> None:
        await store.put(f"{prefix}/{path.relative_to(source).as_posix()}", path)

    await store.put(".first", b"x")
    await for_each(put, _files(source), at_once=_PARALLEL)
    await store.close()


def _download(
    bench: Bench, server: S3Server, client: str, prefix: str, source: Path
) -> uploads.Sample:
    target = bench.scratch() / "target"
    if client not in {_OURS, _CALLED}:  # which want to create it
        target.mkdir()
    command = script(
        "storage/download", client, server.endpoint, uploads.BUCKET, prefix, source, target
    )
    told = finish(command, **uploads.credentials(server)).told
    for path in _files(target):  # frees the space, but not the inodes (`Bench.scratch`)
        os.truncate(path, 0)
    return uploads.Sample(wall_s=told["wall_s"], cpu_s=told["cpu_s"], rss=told["peak"])
