"""Creates the S3 client: timeouts, retries and addressing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.syncer.stores.s3.direct import DirectS3
from holdfast.syncer.stores.s3.errors import code_and_status
from holdfast.syncer.stores.s3.listing import moment
from holdfast.syncer.stores.s3.options import endpoint_url, is_set, seconds

CONNECTIONS = 32
_CONNECT_S = 5
_READ_S = 60
_ATTEMPTS = 3
_LEAST_BYTES = 2 << 20


@asynccontextmanager
async def open_client(options: Mapping[str, str]) -> AsyncIterator[Any]:
    """An aiobotocore client for these options of an S3 URI. Without keys in the options, botocore
    looks for credentials.

    Raises what botocore raises.
    """
    async with _client(_session(), options) as client:
        yield client


@asynccontextmanager
async def open_direct(options: Mapping[str, str], bucket: str) -> AsyncIterator[DirectS3]:
    """Like `open_client`, with `DirectS3` for this bucket."""
    session = _session()
    async with _client(session, options) as client:
        if is_set(options, "anonymous"):
            credentials = None
        elif "access_key" in options:
            credentials = _Fixed(options)
        else:
            credentials = await session.get_credentials()
        bundle = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        direct = DirectS3(
            client,
            bucket,
            credentials,
            ca_bundle=bundle,
            request_timeout_s=seconds(options, "request_timeout", _READ_S),
        )
        try:
            yield direct
        finally:
            await direct.close()


@dataclass(frozen=True, slots=True)
class _Fixed:
    """The user's credentials, with the interface of those that botocore finds."""

    options: Mapping[str, str]

    async def get_frozen_credentials(self) -> Any:
        from botocore.credentials import ReadOnlyCredentials

        options = self.options
        return ReadOnlyCredentials(
            options["access_key"], options["secret_key"], options.get("session_token")
        )


def _session() -> Any:
    from aiobotocore.session import get_session

    session = get_session()
    session.register_component("data_loader", _service_descriptions())
    parsers = session.get_component("response_parser_factory")
    parsers.set_parser_defaults(timestamp_parser=moment)
    return session


def _client(session: Any, options: Mapping[str, str]) -> Any:
    endpoint = endpoint_url(options)
    return session.create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=options.get("region") or ("us-east-1" if endpoint else None),
        use_ssl=options.get("scheme") != "http",
        aws_access_key_id=options.get("access_key"),
        aws_secret_access_key=options.get("secret_key"),
        aws_session_token=options.get("session_token"),
        config=_config(options),
    )


@cache
def _service_descriptions() -> Any:
    """botocore's description of S3, read once per process: a client takes 12 ms instead of 80.

    The session, which has the credentials, is created each time.
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
        # Buckets as host names need DNS entries that private servers rarely have.
        s3={"addressing_style": "path" if "endpoint_override" in options else "auto"},
        # botocore's default sends checksums in trailers, which Ceph, rclone and others refuse.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version=UNSIGNED if is_set(options, "anonymous") else None,
    )


async def make_bucket(s3: Any, bucket: str, region: str | None) -> None:
    """Create the bucket unless it exists. Raises what botocore raises."""
    try:
        await s3.head_bucket(Bucket=bucket)
    except Exception as error:
        if code_and_status(error)[1] != 404:
            raise
        elsewhere = region not in {None, "", "us-east-1"}
        where = {"CreateBucketConfiguration": {"LocationConstraint": region}} if elsewhere else {}
        await s3.create_bucket(Bucket=bucket, **where)


class BufferBudget:
    """Limits the bytes in memory for requests in progress."""

    def __init__(self, total_bytes: int) -> None:
        self._total = self._free = total_bytes
        self._released = asyncio.Event()

    @asynccontextmanager
    async def take(self, size: int) -> AsyncIterator[None]:
        """Wait until `size` bytes are free, and reserve them. Small requests count as 2 MiB, which
        limits their number, too."""
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
