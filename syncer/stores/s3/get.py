"""Downloads an object of S3 to a file, which appears when it is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.files.durable import new_file_for, write_all
from holdfast.syncer.stores.store import allowance_s

_ANSWER_S = 60.0


async def download(s3: Any, bucket_key: Mapping[str, str], target: Path) -> int:
    """Download an object and return its size. Raises what botocore raises, and
    StorageUnavailable."""
    got = 0
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_ANSWER_S) as deadline:
        answer = await s3.get_object(**bucket_key)
        size = int(answer["ContentLength"])
        deadline.reschedule(loop.time() + allowance_s(size))
        with new_file_for(target) as file:
            async with answer["Body"] as body:
                # Written on the loop: a chunk goes to the page cache in less time than a thread
                # takes to wake.
                async for chunk in body.iter_chunks(1 << 20):
                    write_all(file.fileno(), chunk)
                    got += len(chunk)
            if got != size:
                cause = f"{got} of {size} bytes arrived"
                raise StorageUnavailable("get", bucket_key["Key"], cause)
    return got
