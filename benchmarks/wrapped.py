"""A checkpoint of many small files through `PyFileSystem(FSSpecHandler(s3fs))`, four ways.

holdfast uploads, confirms each object and writes the manifest last. Ray's way is
`pyarrow.fs.copy_files` to the same filesystem, which confirms nothing; s3fs has its own `put`.
Each way is a separate process, on a moto server on this machine, one after the other.

    python -m benchmarks.wrapped [--files 1000] [--rounds 8] [--json out.json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from tests.rig.storage.s3_server import S3Server, make_bucket, moto_server

_BYTES = 4096
WAYS = ("holdfast", "subclass", "copy_files", "s3fs.put")


def _s3fs(server: dict[str, str], *, is_subclass: bool = False) -> Any:
    import s3fs

    kind = s3fs.S3FileSystem
    return (type("Own", (kind,), {}) if is_subclass else kind)(
        key=server["access_key"], secret=server["secret_key"], endpoint_url=server["endpoint"]
    )


def _wrapped(server: dict[str, str], *, is_subclass: bool = False) -> Any:
    import pyarrow.fs as arrow_fs

    made = _s3fs(server, is_subclass=is_subclass)
    return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(made))


async def _commit(
    server: dict[str, str], source: Path, target: str, *, is_subclass: bool
) -> float:
    from holdfast.syncer.checkpoint import manifest
    from holdfast.syncer.checkpoint.upload import CommittedFiles, Upload
    from holdfast.syncer.stores.location import Location
    from holdfast.syncer.stores.owned_store import OwnedStore

    store = Location.resolve(target, _wrapped(server, is_subclass=is_subclass), {}).open_store()
    owned = OwnedStore(store, where=target, experiment_id="bench", parallel=16)
    await owned.claim()
    written = await asyncio.to_thread(manifest.write, source)
    upload = Upload(
        storage=owned,
        committed=CommittedFiles(),
        directory=source,
        folder="trial/checkpoint_000000",
        written=written,
    )
    began = time.perf_counter()
    await upload.perform()
    took_s = time.perf_counter() - began
    await owned.close()
    return took_s


def _copy_files(server: dict[str, str], source: Path, target: str) -> float:
    import pyarrow.fs as arrow_fs

    filesystem = _wrapped(server)
    began = time.perf_counter()
    arrow_fs.copy_files(str(source), target, destination_filesystem=filesystem)
    return time.perf_counter() - began


def _put(server: dict[str, str], source: Path, target: str) -> float:
    filesystem = _s3fs(server)
    began = time.perf_counter()
    filesystem.put(f"{source}/", target, recursive=True)
    return time.perf_counter() - began


def one(way: str, server: dict[str, str], source: str) -> float:
    """Seconds for the upload alone, after imports, the first request, and the hashes and fsyncs
    that make the local copy durable."""
    _wrapped(server).get_file_info("bench/nothing")
    target = f"bench/{way}-{uuid4().hex}"
    match way:
        case "holdfast" | "subclass":
            is_subclass = way == "subclass"
            return asyncio.run(_commit(server, Path(source), target, is_subclass=is_subclass))
        case "copy_files":
            return _copy_files(server, Path(source), target)
        case _:
            return _put(server, Path(source), target)


def _in_a_process(way: str, server: S3Server, source: Path) -> float:
    given = {name: getattr(server, name) for name in ("endpoint", "access_key", "secret_key")}
    asked = json.dumps({"way": way, "server": given, "source": str(source)})
    code = "import sys, json, benchmarks.wrapped as w; print(w.one(**json.loads(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, asked], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure(files: int, rounds: int) -> list[dict[str, Any]]:
    """Measure the ways in turn, each first in turn, so that other load affects all."""
    with tempfile.TemporaryDirectory() as folder, moto_server() as server:
        make_bucket(server, "bench")
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(rounds):
            for way in (*WAYS[turn % 4 :], *WAYS[: turn % 4]):
                source = Path(folder) / f"{way}-{turn}"
                source.mkdir()
                for number in range(files):
                    (source / f"{number:05}.bin").write_bytes(uuid4().bytes * (_BYTES // 16))
                times[way].append(_in_a_process(way, server, source))
    rays = times["copy_files"]
    return [
        {
            "way": way,
            "files": files,
            "seconds": median(taken),
            "per_s": files / median(taken),
            # Per round, because other load affected both in it.
            "of_copy_files": median(
                theirs / ours for ours, theirs in zip(taken, rays, strict=True)
            ),
        }
        for way, taken in times.items()
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--files", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=8)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    rows = measure(given.files, given.rounds)
    print(f"{'way':12} {'files':>6} {'seconds':>8} {'files/s':>8} {'of copy_files':>14}")
    for row in rows:
        told = f"{row['way']:12} {row['files']:6} {row['seconds']:8.2f} {row['per_s']:8.0f}"
        print(f"{told} {row['of_copy_files']:14.0%}")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
