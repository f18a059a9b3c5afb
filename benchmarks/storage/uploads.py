"""Uploads to real S3 servers, compared with other clients that upload the same bytes.

The servers run on the same machine and are the limit: the client's CPU time says more than the
elapsed time. Each upload runs in its own process.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from uuid import uuid4

from benchmarks.measure import MIB, Bench, finish, script
from benchmarks.rows import Goal, Row
from benchmarks.storage.checkpoints import small_files
from holdfast.syncer.stores.location import Location
from tests.rig.storage.s3_server import (
    S3Server,
    clear_bucket,
    has_seaweed,
    make_bucket,
    moto_server,
    rclone_server,
    seaweed_server,
)

BUCKET = "bucket"
_OURS, _COMMIT = "holdfast", "holdfast-commit"
_RAW = ("aiobotocore", "boto3", "boto3-crt", "obstore")
_NEEDS = {"boto3-crt": "awscrt"}
_OTHERS = ("s3fs", "pyarrow")
_FAST = Goal(of="ratio", bound=0.85, at_least=True)
_CHEAP = Goal(of="ratio", bound=1.2)
# Of large files, and of many small checkpoints.
_AS_FAST = Goal(of="ratio", bound=0.95, at_least=True)
_AS_CHEAP = Goal(of="ratio", bound=1)
_NEARLY_AS_CHEAP = Goal(of="ratio", bound=1.5)
_PAIRS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    wall_s: float
    cpu_s: float
    rss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    name: str
    source: Path
    mebibytes: float
    turns: int
    fast: Goal | None = None
    cheap: Goal | None = None


def measure(bench: Bench) -> list[Row]:
    works = _works(bench)
    rows: list[Row] = []
    for name in [*(["seaweed"] if has_seaweed() else []), "moto", "rclone"]:
        with SERVERS[name](bench) as (server, forget):
            for work in works:
                rows += _rows(bench, name, server, forget, work)
    return rows


def _works(bench: Bench) -> list[_Work]:
    folder = bench.scratch()
    pairs = bench.runs if bench.quick else max(bench.runs, _PAIRS)
    many, some, large = bench.size(1000, 20), bench.size(100, 3), bench.size(256, 17)
    few = bench.size(5, 1)
    return [
        _Work(
            name=f"{many:,} x 4 KiB",
            source=small_files(folder / "many", many),
            mebibytes=many / 256,
            turns=pairs,
            fast=_FAST,
            cheap=_CHEAP,
        ),
        _Work(
            name=f"{some} checkpoints of 1 MiB",
            source=_checkpoints(folder / "some", some),
            mebibytes=some,
            turns=pairs,
            cheap=_NEARLY_AS_CHEAP,
        ),
        _Work(
            name=f"{few} x {large} MiB",
            source=_files(folder / "large", few, large),
            mebibytes=few * large,
            turns=bench.runs,
            fast=_AS_FAST,
            cheap=_AS_CHEAP,
        ),
    ]


def _checkpoints(folder: Path, count: int) -> Path:
    """Checkpoints of one file each, for which raw clients make one request."""
    folder.mkdir()
    for number in range(count):
        _files(folder / f"checkpoint_{number:06d}", 1, 1)
    return folder


def _files(folder: Path, count: int, mebibytes: int) -> Path:
    import os

    folder.mkdir()
    for number in range(count):
        with (folder / f"part-{number:04d}").open("wb") as file:
            for _ in range(mebibytes):
                file.write(os.urandom(MIB))
    return folder


def _rows(
    bench: Bench, at: str, server: S3Server, forget: Callable[[str], None], work: _Work
) -> list[Row]:
    raw = [name for name in (*_RAW, *_OTHERS) if find_spec(_NEEDS.get(name, name))]
    clients = [_OURS, _COMMIT, *raw]
    if at == "rclone":  # pyarrow's writes fail there (411), and the CRT does not read its XML
        clients = [name for name in clients if name not in {"pyarrow", "boto3-crt"}]
    samples = replace(bench, runs=work.turns).interleaved(
        {name: partial(_upload, server, forget, name, work.source) for name in clients}
    )
    best = min(
        (name for name in _RAW if samples.get(name)),
        key=lambda name: median(sample.wall_s for sample in samples[name]),
    )
    title = f"{work.name} to {at}"
    rows = [
        _row(f"{title}, throughput", "MiB/s", samples, best, work.fast, _speed(work)),
        _row(f"{title}, CPU", "s", samples, best, work.cheap, _cpu),
        _difference(title, samples, best),
        _row(f"{title}, largest resident memory", "MiB", samples, best, None, _memory),
    ]
    rows += [
        _row(f"{title}, CPU compared with {name}", "s", samples, name, None, _cpu)
        for name in clients
        if name not in {_OURS, best, _COMMIT}
    ]
    rows.append(
        Row(
            work=f"{title}, CPU of hashing, fsync and upload",
            unit="s",
            ours=[sample.cpu_s for sample in samples[_COMMIT]],
        )
    )
    return rows


def _row(
    work: str,
    unit: str,
    samples: Mapping[str, Sequence[Sample]],
    reference_name: str,
    goal: Goal | None,
    shape: Callable[[Sample], float],
) -> Row:
    return Row(
        work=work,
        unit=unit,
        ours=[shape(sample) for sample in samples[_OURS]],
        reference=[shape(sample) for sample in samples[reference_name]],
        reference_name=reference_name,
        goal=goal,
    )


def _difference(title: str, samples: Mapping[str, Sequence[Sample]], reference_name: str) -> Row:
    """The difference within pairs that ran one after the other.

    The true median is between the second smallest and the second largest of ten with 98%.
    """
    pairs = zip(samples[_OURS], samples[reference_name], strict=True)
    found = sorted(ours.cpu_s - theirs.cpu_s for ours, theirs in pairs)
    within = f"{found[1]:+.2f} to {found[-2]:+.2f} s" if len(found) > 3 else "too few pairs"
    return Row(
        work=f"{title}, CPU more than {reference_name} (98%: {within})",
        unit="s",
        ours=found,
    )


def _speed(work: _Work) -> Callable[[Sample], float]:
    return lambda sample: work.mebibytes / sample.wall_s


def _cpu(sample: Sample) -> float:
    return sample.cpu_s


def _memory(sample: Sample) -> float:
    return sample.rss / MIB


def _upload(server: S3Server, forget: Callable[[str], None], client: str, source: Path) -> Sample:
    prefix = uuid4().hex
    command = script("storage/upload", client, server.endpoint, BUCKET, prefix, source)
    told = finish(command, **credentials(server)).told
    forget(prefix)
    return Sample(wall_s=told["wall_s"], cpu_s=told["cpu_s"], rss=told["peak"])


def credentials(server: S3Server) -> dict[str, str]:
    """The environment of a client."""
    return {
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@contextmanager
def _seaweed(bench: Bench) -> Iterator[tuple[S3Server, Callable[[str], None]]]:
    with seaweed_server(bench.scratch()) as server:
        # It frees the space of single objects later.
        yield server, lambda prefix: clear_bucket(server, BUCKET)


@contextmanager
def _moto(bench: Bench) -> Iterator[tuple[S3Server, Callable[[str], None]]]:
    with moto_server() as server:
        make_bucket(server, BUCKET)

        async def forget(prefix: str) -> None:
            store = Location.resolve(server.uri(f"{BUCKET}/{prefix}"), None, {}).open_store()
            await store.delete([entry.key for entry in await store.list()])
            await store.close()

        yield server, lambda prefix: asyncio.run(forget(prefix))


@contextmanager
def _rclone(bench: Bench) -> Iterator[tuple[S3Server, Callable[[str], None]]]:
    folder = bench.scratch()
    (folder / BUCKET).mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(rclone_server(folder))
        yield server, lambda prefix: shutil.rmtree(folder / BUCKET / prefix, ignore_errors=True)


SERVERS = {"seaweed": _seaweed, "moto": _moto, "rclone": _rclone}
