"""Creates the S3 client: timeouts, retries and addressing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any

from holdfast.syncer.stores.s3.addressing import ANY_REGION, ca_bundle
from holdfast.syncer.stores.s3.answers import moment
from holdfast.syncer.stores.s3.errors import code_and_status
from holdfast.syncer.stores.s3.options import endpoint_url, is_set, seconds

CONNECTIONS = 32
CONNECT_S = 5
READ_S = 60
_ATTEMPTS = 3
_LEAST_BYTES = 2 << 20


class Botocore:
    """aiobotocore's client, made when it is first needed."""

    def __init__(self, options: Mapping[str, str], watch: Callable[[Any, str], None]) -> None:
        """`watch` is called with each signed request just before it is sent, and with the file of
        certificates that botocore trusts."""
        self._options = options
        self._watch = watch
        self._stack = AsyncExitStack()
        self._making = asyncio.Lock()
        self._client: Any = None
        # Those that botocore has found.
        self.credentials: Any = None

    async def client(self) -> Any:
        """Raises what botocore raises."""
        if self._client is None:
            async with self._making:
                if self._client is None:
                    self._client = await self._made()
        return self._client

    async def _made(self) -> Any:
        session = _session()
        client = await self._stack.enter_async_context(_client(session, self._options))
        if not is_set(self._options, "anonymous"):
            if "access_key" not in self._options:
                self.credentials = await session.get_credentials()
            bundle = ca_bundle(os.environ, session.get_config_variable("ca_bundle") or "")

            def watch(request: Any, **_: Any) -> None:
                self._watch(request, bundle)

            client.meta.events.register("before-send.s3", watch)
        return client

    async def close(self) -> None:
        await self._stack.aclose()


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
        region_name=options.get("region") or (ANY_REGION if endpoint else None),
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
        connect_timeout=seconds(options, "connect_timeout", CONNECT_S),
        read_timeout=seconds(options, "request_timeout", READ_S),
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
        elsewhere = region not in {None, "", ANY_REGION}
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
