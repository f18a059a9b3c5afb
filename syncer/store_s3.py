"""A store in an S3 bucket, over aiobotocore.

Every body is sent with its MD5, which all servers that we know check (CRC-32 only newer ones do).
A put counts when the answer's ETag is that MD5, or else when a look at the object shows its size.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from holdfast.syncer.durable import TEMPORARY, is_leftover, unique, write_all
from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    from_os_error,
)
from holdfast.syncer.s3_client import CONNECTIONS, Body, Budget, open_direct, read_body
from holdfast.syncer.s3_errors import code_and_status, refused_object, translated
from holdfast.syncer.s3_multipart import MULTIPART_FROM_BYTES, Multipart, is_ours, put_mark
from holdfast.syncer.s3_options import SECRETS, is_set
from holdfast.syncer.store import (
    Entry,
    Stored,
    allowance_s,
    check_key,
    deletion_failure,
    folder_prefix,
    for_each,
    source_size,
)

R = TypeVar("R")

_IN_FLIGHT_BYTES = 64 << 20
_READ_INLINE_BYTES = 64 << 10
_DELETE_BATCH = 1000
_DOWNLOAD_ATTEMPTS = 3
_LOOKUP_S = 60.0
_NO_BATCHES = {"MethodNotAllowed", "MissingContentMD5", "NotImplemented"}


class S3Store:
    """Objects below `prefix` in a bucket. The client is made by the first operation.

    `options` are those of an S3 URI (`s3_options`), credentials among them.
    """

    def __init__(
        self, bucket: str, prefix: str = "", *, options: Mapping[str, str], where: str = ""
    ) -> None:
        self._bucket = bucket
        self._prefix = folder_prefix(prefix)
        self._options = dict(options)
        self._secrets = [options[name] for name in SECRETS if name in options]
        self._where = where or f"s3://{bucket}/{prefix}"
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._client: Any = None
        self._honours_conditions: bool | None = None
        self._budget = Budget(_IN_FLIGHT_BYTES)

    @property
    def where(self) -> str:
        return self._where

    @property
    def has_folders(self) -> bool:
        return False

    @property
    def conditional_puts(self) -> bool:
        return self._honours_conditions is True

    async def put(self, key: str, source: bytes | Path, *, create_only: bool = False) -> Stored:
        place = self._place(key)
        size = self._told(key, lambda: source_size(source))
        condition = await self._condition(key) if create_only else {}
        if size >= MULTIPART_FROM_BYTES:
            return await Multipart(
                call=lambda request, s: self._call("put", key, request, s),
                read=lambda start, n: self._local(key, n, lambda: read_body(source, start, n)),
                budget=self._budget,
                place=place,
                condition=condition,
                size=size,
            ).upload()
        async with self._budget.take(size):
            body = await self._local(key, size, lambda: read_body(source, 0, size))
            return await self._call(
                "put", key, lambda s3: _put_whole(s3, place, body, condition), allowance_s(size)
            )

    async def get(self, key: str, target: Path) -> int:
        place = self._place(key)
        for attempt in range(1, _DOWNLOAD_ATTEMPTS + 1):
            try:
                # botocore retries requests, not bodies that break off.
                return await self._call("get", key, lambda s3: _download(s3, place, target), None)
            except StorageUnavailable:
                if attempt == _DOWNLOAD_ATTEMPTS:
                    raise
        raise AssertionError("the loop above returns or raises")

    async def read(self, key: str) -> bytes:
        place = self._place(key)

        async def read_all(s3: Any) -> bytes:
            answer = await s3.get_object(**place)
            async with answer["Body"] as body:
                return bytes(await body.read())

        return await self._call("read", key, read_all)

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[Entry]:
        entries: dict[str, Entry] = {}
        query = {"Bucket": self._bucket, "Prefix": self._prefix + folder_prefix(prefix)}
        while True:
            page = await self._call("list", prefix, lambda s3: s3.list_objects_v2(**query))
            for item in page.get("Contents", ()):
                entry = self._entry(item)
                # Consoles and other tools make empty objects named like folders.
                if not item["Key"].endswith("/") and (leftovers or not is_leftover(entry.name)):
                    entries[entry.key] = entry
            if not page.get("IsTruncated"):
                return [entries[key] for key in sorted(entries)]
            query["ContinuationToken"] = page["NextContinuationToken"]

    async def head(self, key: str) -> Entry | None:
        place = self._place(key)
        try:
            answer = await self._call("head", key, lambda s3: s3.head_object(**place))
        except NotStored:
            return None
        return self._entry({"Key": place["Key"], "Size": answer["ContentLength"], **answer})

    async def delete(self, keys: Iterable[str]) -> None:
        wanted = [check_key(key) for key in keys]
        batches = [wanted[i : i + _DELETE_BATCH] for i in range(0, len(wanted), _DELETE_BATCH)]
        failures: dict[str, StorageError] = {}
        for batch in batches:
            failures.update(await self._delete_batch(batch))
        if failures:
            raise deletion_failure(self._where, failures)

    async def close(self) -> None:
        self._client = None
        await self._stack.aclose()

    def _place(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _shown(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    async def _opened(self) -> Any:
        async with self._opening:
            if self._client is None:
                client = await self._stack.enter_async_context(
                    open_direct(self._options, self._bucket)
                )
                if is_set(self._options, "allow_bucket_creation"):
                    await _make_bucket(client, self._bucket, self._options.get("region"))
                self._client = client
            return self._client

    async def _call(
        self,
        operation: str,
        key: str,
        request: Callable[[Any], Awaitable[R]],
        deadline_s: float | None = _LOOKUP_S,
    ) -> R:
        try:
            async with asyncio.timeout(deadline_s):
                return await request(await self._opened())
        except Exception as error:  # whatever botocore and aiohttp raise; the caller is told
            raise translated(error, operation, self._shown(key), self._secrets) from error

    async def _local(self, key: str, size: int, perform: Callable[[], R]) -> R:
        """Read what is to be put. In a thread if it is much: 8 MiB take 15 ms, and 64 KiB 0.2,
        which is what the way into a thread and back takes too."""
        if size <= _READ_INLINE_BYTES:
            return self._told(key, perform)
        import anyio.to_thread

        return await anyio.to_thread.run_sync(lambda: self._told(key, perform))

    def _told(self, key: str, perform: Callable[[], R]) -> R:
        """Perform on the local source, with its errors told as ours."""
        try:
            return perform()
        except EOFError as error:
            raise StorageUnavailable("put", self._shown(key), str(error)) from error
        except OSError as error:
            raise from_os_error(error, "put", self._shown(key)) from error

    async def _condition(self, key: str) -> Mapping[str, str]:
        if self._honours_conditions is None:
            self._honours_conditions = await self._probe_conditions()
        if self._honours_conditions:
            return {"IfNoneMatch": "*"}
        if await self.head(key) is not None:
            raise AlreadyStored("put", self._shown(key), "there is such an object already")
        return {}

    async def _probe_conditions(self) -> bool:
        """Put one object twice on condition that it is new: some servers just overwrite it."""
        name = f"{TEMPORARY}{unique()}"
        place, body = self._place(name), read_body(b"probe", 0, 5)

        async def put(s3: Any) -> Stored:
            return await _put_whole(s3, place, body, {"IfNoneMatch": "*"})

        try:
            await self._call("put", name, put)
            await self._call("put", name, put)
        except AlreadyStored:
            return True
        except StorageRefused as error:
            if code_and_status(_cause(error))[1] == 501:
                return False
            raise
        finally:
            await self.delete([name])
        return False

    async def _delete_batch(self, keys: Sequence[str]) -> Mapping[str, StorageError]:
        # XML 1.0, in which the batch is sent, cannot express control characters.
        named = {self._prefix + key: key for key in keys if key.isprintable()}
        single = [key for key in keys if not key.isprintable()]
        failures: dict[str, StorageError] = {}
        if named:
            objects = {"Objects": [{"Key": name} for name in named], "Quiet": True}
            try:
                answer = await self._call(
                    "delete",
                    "",
                    lambda s3: s3.delete_objects(Bucket=self._bucket, Delete=objects),
                )
                for item in answer.get("Errors", ()):
                    key = named[item["Key"]]
                    failures[key] = refused_object(
                        item.get("Code", ""), item.get("Message", ""), key
                    )
            except StorageRefused as error:
                if code_and_status(_cause(error))[0] not in _NO_BATCHES:
                    raise
                single = list(keys)

        async def delete_one(key: str) -> None:
            place = self._place(key)
            try:
                await self._call("delete", key, lambda s3: s3.delete_object(**place))
            except NotStored:
                return
            except StorageError as error:
                failures[key] = error

        await for_each(delete_one, single, at_once=CONNECTIONS)
        return failures

    def _entry(self, item: Mapping[str, Any]) -> Entry:
        modified = item.get("LastModified")
        return Entry(
            key=item["Key"].removeprefix(self._prefix),
            size=item["Size"],
            etag=str(item.get("ETag", "")).strip('"') or None,
            modified=None if modified is None else modified.timestamp(),
        )


def _cause(error: StorageError) -> Exception:
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


async def _put_whole(
    s3: Any, place: Mapping[str, str], body: Body, condition: Mapping[str, str]
) -> Stored:
    size, etag, mark = len(body.data), body.digest.hex(), put_mark(condition)
    try:
        answer = await s3.put_object(
            **place, Body=body.data, ContentMD5=body.content_md5, **mark, **condition
        )
    except Exception as error:
        if code_and_status(error)[1] != 412 or not await is_ours(s3, place, mark):
            raise
        return Stored(size=size, etag=etag)
    given = str(answer.get("ETag", "")).strip('"')
    if given != etag:
        # Encrypted buckets have ETags of their own making; then the size must do.
        found = await s3.head_object(**place)
        if found["ContentLength"] != size:
            cause = f"{size} bytes were sent and the store has {found['ContentLength']}"
            raise StorageUnavailable("put", place["Key"], cause)
    return Stored(size=size, etag=given or None)


async def _download(s3: Any, place: Mapping[str, str], target: Path) -> int:
    temporary = target.parent / f"{TEMPORARY}{unique()}"
    got = 0
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_LOOKUP_S) as deadline:
        answer = await s3.get_object(**place)
        size = int(answer["ContentLength"])
        deadline.reschedule(loop.time() + allowance_s(size))
        try:
            with _created(temporary) as file:
                async with answer["Body"] as body:
                    # Written on the loop: a chunk is what came at once, and goes to the page
                    # cache in less time than a thread takes to wake.
                    async for chunk in body.iter_chunks(1 << 20):
                        write_all(file.fileno(), chunk)
                        got += len(chunk)
            if got != size:
                raise StorageUnavailable("get", place["Key"], f"{got} of {size} bytes came")
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    return got


def _created(path: Path) -> FileIO:
    return open(path, "xb", buffering=0)


async def _make_bucket(s3: Any, bucket: str, region: str | None) -> None:
    try:
        await s3.head_bucket(Bucket=bucket)
    except Exception as error:
        if code_and_status(error)[1] != 404:
            raise
        elsewhere = region not in {None, "", "us-east-1"}
        where = {"CreateBucketConfiguration": {"LocationConstraint": region}} if elsewhere else {}
        await s3.create_bucket(Bucket=bucket, **where)
