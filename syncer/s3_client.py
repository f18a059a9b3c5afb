"""The S3 client: timeouts, retries and addressing, in one place."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.syncer.s3_options import endpoint_url, is_set, seconds

CONNECTIONS = 32
_CONNECT_S = 5
_READ_S = 60
_ATTEMPTS = 3
_LEAST_BYTES = 2 << 20


@asynccontextmanager
async def open_client(options: Mapping[str, str]) -> AsyncIterator[Any]:
    """An aiobotocore client for these options of an S3 URI; without keys, botocore's own chain.

    Raises what botocore raises.
    """
    from aiobotocore.session import get_session

    endpoint = endpoint_url(options)
    session = get_session()
    session.register_component("data_loader", _service_descriptions())
    async with session.create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=options.get("region") or ("us-east-1" if endpoint else None),
        use_ssl=options.get("scheme") != "http",
        aws_access_key_id=options.get("access_key"),
        aws_secret_access_key=options.get("secret_key"),
        aws_session_token=options.get("session_token"),
        config=_config(options),
    ) as client:
        yield client


@cache
def _service_descriptions() -> Any:
    """botocore's JSON of S3, read once per process: 12 ms per client instead of 80.

    The session, which holds credentials, is made anew each time.
    """
    from botocore.loaders import create_loader

    return create_loader()


def _config(options: Mapping[str, str]) -> Any:
    from aiobotocore.config import AioConfig
    from botocore import UNSIGNED

    return AioConfig(
        connect_timeout=seconds(options, "connect_timeout", _CONNECT_S),
        read_timeout=seconds(options, "request_timeout", _READ_S),
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        # Buckets as host names need DNS that a server of one's own rarely has.
        s3={"addressing_style": "path" if "endpoint_override" in options else "auto"},
        # botocore's default sends checksums in trailers, which Ceph, rclone and others refuse.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version=UNSIGNED if is_set(options, "anonymous") else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The bytes of one request, and their MD5."""

    data: bytes
    digest: bytes

    @property
    def content_md5(self) -> str:
        return base64.b64encode(self.digest).decode()


def read_body(source: bytes | Path, start: int, size: int) -> Body:
    """Read and hash a stretch of the source. Raises OSError; EOFError if the file got shorter."""
    if isinstance(source, bytes):
        data = source if size == len(source) else source[start : start + size]
    else:
        with open(source, "rb", buffering=0) as file:
            data = os.pread(file.fileno(), size, start)
    if len(data) != size:
        raise EOFError("the file became shorter while it was uploaded")
    return Body(data=data, digest=hashlib.md5(data, usedforsecurity=False).digest())


class Budget:
    """How many bytes may be held for requests that are under way."""

    def __init__(self, total_bytes: int) -> None:
        self._total = self._free = total_bytes
        self._released = asyncio.Event()

    @asynccontextmanager
    async def take(self, size: int) -> AsyncIterator[None]:
        """Wait until there is room, and hold it. Small requests count as 2 MiB, so that their
        number is bounded too."""
        share = min(max(size, _LEAST_BYTES), self._total)
        while self._free < share:
            self._released.clear()
            await self._released.wait()
        self._free -= share
        try:
            yield
        finally:
            self._free += share
            self._released.set()
