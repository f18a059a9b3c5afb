"""One client downloads a checkpoint: `download.py CLIENT ENDPOINT BUCKET PREFIX SOURCE TARGET`.

SOURCE is the folder whose files are in the bucket, which says what there is to download; TARGET is
a new folder. The other clients ask for large objects in parallel ranges of 8 MiB, too.

Prints the seconds and CPU seconds of this process for it, without its imports and its first, tiny
get, and its largest resident memory in bytes. Credentials are in the environment.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from transfers import AT_ONCE, crt_transfers, measured, peak, told

client, endpoint, bucket, prefix, source, target = sys.argv[1:]
SIZES = {path.relative_to(source).as_posix(): path.stat().st_size
         for path in sorted(Path(source).rglob("*"))
         if path.is_file() and path.name != ".holdfast.json"}  # fmt: skip
FIRST = ".first"
RANGE_BYTES = 8 << 20

GetRange = Callable[[str, int, int], Awaitable[Any]]


async def each(get: Callable[[str], Awaitable[Any]], get_range: GetRange) -> None:
    """Get small objects whole and large ones in ranges, `AT_ONCE` requests at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def whole(name: str) -> None:
        async with slots:
            data = await get(f"{prefix}/{name}")
        with created(name) as file:
            file.write(data)

    async def part(name: str, descriptor: int, start: int, end: int) -> None:
        async with slots:
            data = await get_range(f"{prefix}/{name}", start, end)
        os.pwrite(descriptor, data, start)

    async def in_ranges(name: str, size: int) -> None:
        with created(name) as file:
            async with asyncio.TaskGroup() as parts:
                for start in range(0, size, RANGE_BYTES):
                    end = min(start + RANGE_BYTES, size)
                    parts.create_task(part(name, file.fileno(), start, end))

    make_folders()
    async with asyncio.TaskGroup() as tasks:
        for name, size in SIZES.items():
            tasks.create_task(whole(name) if size <= RANGE_BYTES else in_ranges(name, size))


def created(name: str) -> Any:
    return open(os.path.join(target, name), "xb", buffering=0)


def make_folders() -> None:
    for name in SIZES:
        Path(target, name).parent.mkdir(parents=True, exist_ok=True)


async def holdfast() -> None:
    """List the checkpoint, read its manifest, download and verify it."""
    from holdfast.syncer.checkpoint.download import fetch, look
    from holdfast.syncer.stores.location import Location

    uri = f"s3://{bucket}/{prefix}?endpoint_override={endpoint}"
    store = Location.resolve(uri, None, {}).open_store()
    first = Location.resolve(f"s3://{bucket}?endpoint_override={endpoint}", None, {}).open_store()
    await first.read(FIRST)
    await store.list("nothing")
    with measured():
        await fetch(store, await look(store), Path(target))
    await store.close()
    await first.close()


def holdfast_checkpoint() -> None:
    """What users call, with the creation of the client."""
    from holdfast.train import Checkpoint

    checkpoint = Checkpoint(f"s3://{bucket}/{prefix}?endpoint_override={endpoint}")
    checkpoint.get_metadata()
    with measured():
        checkpoint.to_directory(target)


async def aiobotocore() -> None:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    config = AioConfig(max_pool_connections=AT_ONCE, s3={"addressing_style": "path"})
    async with get_session().create_client("s3", endpoint_url=endpoint, config=config) as s3:

        async def get(key: str, **asked: str) -> Any:
            answer = await s3.get_object(Bucket=bucket, Key=key, **asked)
            async with answer["Body"] as body:
                return await body.read()

        async def get_range(key: str, start: int, end: int) -> Any:
            return await get(key, Range=f"bytes={start}-{end - 1}")

        await get(FIRST)
        with measured():
            await each(get, get_range)


def boto3() -> None:
    import boto3.s3.transfer
    from boto3.s3.transfer import TransferConfig, create_transfer_manager

    s3 = boto3.client("s3", endpoint_url=endpoint)
    s3.get_object(Bucket=bucket, Key=FIRST)["Body"].read()
    with measured(), create_transfer_manager(s3, TransferConfig(max_concurrency=AT_ONCE)) as moves:
        transfer(moves)


def boto3_crt() -> None:
    import io

    with crt_transfers(endpoint) as moves:
        moves.download(bucket, FIRST, io.BytesIO()).result()
        with measured():
            transfer(moves)


def transfer(moves: Any) -> None:
    make_folders()
    for future in [moves.download(bucket, f"{prefix}/{name}", str(Path(target, name)))
                   for name in SIZES]:  # fmt: skip
        future.result()


async def obstore() -> None:
    import obstore
    from obstore.store import S3Store

    store = S3Store(bucket, endpoint=endpoint, virtual_hosted_style_request=False,
                    client_options={"allow_http": True})  # fmt: skip

    async def get(key: str) -> Any:
        return await (await obstore.get_async(store, key)).bytes_async()

    async def get_range(key: str, start: int, end: int) -> Any:
        return await obstore.get_range_async(store, key, start=start, end=end)

    await get(FIRST)
    with measured():
        await each(get, get_range)


def main() -> None:
    import uvloop

    match client:
        case "holdfast":
            uvloop.run(holdfast())
        case "holdfast-checkpoint":
            holdfast_checkpoint()
        case "aiobotocore":
            asyncio.run(aiobotocore())
        case "boto3":
            boto3()
        case "boto3-crt":
            boto3_crt()
        case "obstore":
            asyncio.run(obstore())
        case _:
            raise SystemExit(f"no such client: {client}")
    got = {name: Path(target, name).stat().st_size for name in SIZES}
    assert got == SIZES, "not all bytes arrived"
    print(json.dumps({**told, "peak": peak()}), flush=True)
    if client == "obstore":  # 0.12 aborts at the interpreter's end, one time in six
        os._exit(0)


if __name__ == "__main__":
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    main()
