"""One client uploads a checkpoint: `upload.py CLIENT ENDPOINT BUCKET PREFIX FOLDER`.

If the folder has folders, each of these is a checkpoint; holdfast commits those of four trials at
once, each trial's one after the other.

Prints the seconds and CPU seconds of this process for it, without its imports and its first, tiny
put (the process that uploads checkpoints lives as long as the experiment), and its largest
resident memory in bytes. Credentials are in the environment.
"""

import asyncio
import io
import json
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from transfers import AT_ONCE, crt_transfers, measured, peak, told

client, endpoint, bucket, prefix, folder = sys.argv[1:]
FILES = {path.relative_to(folder).as_posix(): path for path in sorted(Path(folder).rglob("*"))
         if path.is_file()}  # fmt: skip
CHECKPOINTS = sorted(path for path in Path(folder).iterdir() if path.is_dir()) or [Path(folder)]
TRIALS = 4


async def each(perform: Callable[[str, Path], Awaitable[Any]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, path: Path) -> None:
        async with slots:
            await perform(f"{prefix}/{name}", path)

    async with asyncio.TaskGroup() as tasks:
        for name, path in FILES.items():
            tasks.create_task(one(name, path))


async def holdfast(*, sealed: bool) -> None:
    """The uploader's work, with or without the preparation on the local disk."""
    from anyio import to_thread

    from holdfast.experiment.folder.layout import is_checkpoint
    from holdfast.syncer.artifacts.settings import UploaderSettings
    from holdfast.syncer.checkpoint import manifest
    from holdfast.syncer.stores.location import Location
    from holdfast.syncer.uploader.messages import Commit
    from holdfast.syncer.uploader.uploader import Uploader

    root = CHECKPOINTS[0].parent
    storage = Location.resolve(f"s3://{bucket}/{prefix}?endpoint_override={endpoint}", None, {})
    settings = UploaderSettings(root=root, storage=storage, experiment_id="x", journal="journal",
                    head="head.json", is_record=str.isidentifier,
                    is_checkpoint=is_checkpoint)  # fmt: skip
    uploader = Uploader(settings, lambda message: None)
    await uploader.open()
    await to_thread.run_sync(int)  # the first thread imports a backend
    if sealed:
        written = {path: manifest.write(path) for path in CHECKPOINTS}
        uploader._seal = lambda directory, *_: written[directory]  # type: ignore[method-assign]

    async def commit(trial: int) -> None:
        for path in CHECKPOINTS[trial::TRIALS]:
            await uploader.commit(
                Commit(trial=str(trial), index=0, folder=path.name, iteration=1, time_total_s=0.0)
            )

    with measured():
        async with asyncio.TaskGroup() as tasks:
            for trial in range(TRIALS):
                tasks.create_task(commit(trial))
    await uploader.close()


async def aiobotocore() -> None:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    config = AioConfig(max_pool_connections=AT_ONCE, s3={"addressing_style": "path"})
    async with get_session().create_client("s3", endpoint_url=endpoint, config=config) as s3:

        async def put(key: str, path: Path) -> None:
            with path.open("rb") as body:
                await s3.put_object(Bucket=bucket, Key=key, Body=body)

        await s3.put_object(Bucket=bucket, Key=f"{prefix}/.first", Body=b"x")
        with measured():
            await each(put)


def boto3() -> None:
    import boto3.s3.transfer
    from boto3.s3.transfer import TransferConfig, create_transfer_manager

    s3 = boto3.client("s3", endpoint_url=endpoint)
    s3.put_object(Bucket=bucket, Key=f"{prefix}/.first", Body=b"x")
    with measured(), create_transfer_manager(s3, TransferConfig(max_concurrency=AT_ONCE)) as moves:
        sent = [moves.upload(str(path), bucket, f"{prefix}/{name}")
                for name, path in FILES.items()]  # fmt: skip
        for future in sent:
            future.result()


def boto3_crt() -> None:
    with crt_transfers(endpoint) as moves:
        moves.upload(io.BytesIO(b"x"), bucket, f"{prefix}/.first").result()
        with measured():
            sent = [moves.upload(str(path), bucket, f"{prefix}/{name}")
                    for name, path in FILES.items()]  # fmt: skip
            for future in sent:
                future.result()


def s3fs() -> None:
    import s3fs

    fs = s3fs.S3FileSystem(client_kwargs={"endpoint_url": endpoint})
    fs.pipe(f"{bucket}/{prefix}/.first", b"x")
    with measured():
        fs.put(list(map(str, FILES.values())), [f"{bucket}/{prefix}/{name}" for name in FILES])


def pyarrow() -> None:
    import shutil

    from pyarrow.fs import S3FileSystem

    fs = S3FileSystem(endpoint_override=endpoint, region="us-east-1")

    def put(name: str, path: Path) -> None:
        with path.open("rb") as source, fs.open_output_stream(f"{bucket}/{prefix}/{name}") as out:
            shutil.copyfileobj(source, out, 1 << 20)

    with fs.open_output_stream(f"{bucket}/{prefix}/.first") as out:
        out.write(b"x")
    with measured(), ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(put, FILES.keys(), FILES.values()))


async def obstore() -> None:
    import obstore
    from obstore.store import S3Store

    store = S3Store(bucket, endpoint=endpoint, virtual_hosted_style_request=False,
                    client_options={"allow_http": True})  # fmt: skip

    async def put(key: str, path: Path) -> None:
        await obstore.put_async(store, key, path)

    await obstore.put_async(store, f"{prefix}/.first", b"x")
    with measured():
        await each(put)


def main() -> None:
    import uvloop

    match client:
        case "holdfast":
            uvloop.run(holdfast(sealed=True))
        case "holdfast-commit":
            uvloop.run(holdfast(sealed=False))
        case "aiobotocore":
            asyncio.run(aiobotocore())
        case "boto3":
            boto3()
        case "boto3-crt":
            boto3_crt()
        case "s3fs":
            s3fs()
        case "pyarrow":
            pyarrow()
        case "obstore":
            asyncio.run(obstore())
        case _:
            raise SystemExit(f"no such client: {client}")
    print(json.dumps({**told, "peak": peak()}), flush=True)
    if client == "obstore":  # 0.12 aborts at the interpreter's end, one time in six
        os._exit(0)


if __name__ == "__main__":
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    main()
