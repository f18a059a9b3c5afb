"""A store in an S3 bucket. `upload.py` sends the bytes, `ranges.py` receives them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.dataclass import dataclass
from holdfast.lazy import Framework
from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    os_errors,
)
from holdfast.syncer.files.durable import is_leftover, new_file, new_file_for
from holdfast.syncer.stores.s3.answers import (
    OBJECTS,
    ODD,
    UPLOADS,
    EndlessListing,
    Listing,
    cause_of,
    code_and_status,
    entry_of,
    listed,
    refused_object,
    translated,
)
from holdfast.syncer.stores.s3.client import AT_ONCE, BufferBudget, Client
from holdfast.syncer.stores.s3.options import SECRETS, is_set
from holdfast.syncer.stores.s3.ranges import RangedDownload
from holdfast.syncer.stores.s3.upload import (
    COPIED_PART_BYTES,
    COPY_AT_MOST_BYTES,
    MULTIPART_FROM_BYTES,
    Body,
    Buffers,
    Checksums,
    CopiedParts,
    Multipart,
    PartRequest,
    SentParts,
    UnfinishedUploads,
    abort,
    from_source,
    is_etag_of,
    part_bytes,
    put_whole,
    read_body,
    read_source,
)
from holdfast.syncer.stores.store import (
    LOOKUP_S,
    ObjectInfo,
    PutResult,
    allowance_s,
    check_key,
    deletion_failure,
    folder_prefix,
    for_each,
    source_size,
)

R = TypeVar("R")

_IN_FLIGHT_BYTES = 64 << 20
_DOWNLOADS_AT_ONCE = 16
_PACKAGES = [
    Framework(title=module, module=module, extra="s3")
    for module in ("botocore", "crc32c", "httptools")
]
_BATCH = 1000
_NO_BATCHES = {"MethodNotAllowed", "MissingContentMD5", "NotImplemented"}


class S3Store:
    """Objects below `prefix` in a bucket. The first operation creates the client.

    `options` are those of an S3 URI (`options.py`), including credentials.
    """

    has_folders = False

    def __init__(
        self, bucket: str, prefix: str = "", *, options: Mapping[str, str], where: str = ""
    ) -> None:
        self._bucket = bucket
        self._prefix = folder_prefix(prefix)
        self._options = dict(options)
        self._secrets = [options[name] for name in SECRETS if name in options]
        self.where = where or f"s3://{bucket}/{prefix}"
        self._opening = asyncio.Lock()
        self._client: Client | None = None
        self._honours_conditions: bool | None = None
        self._budget = BufferBudget(_IN_FLIGHT_BYTES)
        self._buffers = Buffers()
        self._arriving = asyncio.Semaphore(_DOWNLOADS_AT_ONCE)
        self._checksums = Checksums()
        self._unfinished = UnfinishedUploads(self._prefix, self.where, self._abort)

    @property
    def conditional_puts(self) -> bool | None:
        return self._honours_conditions

    async def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        create_only: bool = False,
        resumable: bool = False,
    ) -> PutResult:
        if self._client is None:
            await self._call("put", key, _only_open)
        size = from_source(lambda: source_size(source), self._shown(key))
        is_large = size >= MULTIPART_FROM_BYTES
        condition: Mapping[str, str] = {}
        if create_only:
            if not self._honours_conditions and await self.head(key) is not None:
                raise AlreadyStored("put", self._shown(key), "there is such an object already")
            if self._honours_conditions or (self._honours_conditions is None and not is_large):
                condition = {"IfNoneMatch": "*"}
        if is_large:
            return await self._put_in_parts(key, source, size, condition, resumable)
        async with self._budget.take(size):
            with self._buffers.lent(size) as buffer:
                with_md5 = not self._checksums.knows_crc
                read = partial(read_body, source, 0, size, buffer, with_md5=with_md5)
                body = await read_source(read, size, self._shown(key))
                if condition and self._honours_conditions is None:
                    return await self._put_probing(key, body, condition)
                return await self._put_whole(key, body, condition)

    async def _put_whole(self, key: str, body: Body, condition: Mapping[str, str]) -> PutResult:
        bucket_key = self._bucket_key(key)
        return await self._call(
            "put",
            key,
            lambda s3: put_whole(s3, bucket_key, body, condition, self._checksums),
            allowance_s(len(body.data)),
        )

    async def _put_probing(self, key: str, body: Body, condition: Mapping[str, str]) -> PutResult:
        """Put a new object, and then put it again to find out whether the server refuses that."""
        try:
            stored = await self._put_whole(key, body, condition)
        except AlreadyStored:
            self._honours_conditions = True
            raise
        except StorageRefused as error:
            if code_and_status(cause_of(error))[1] != 501:
                raise
            self._honours_conditions = False
            return await self._put_whole(key, body, {})
        try:
            await self._put_whole(key, body, condition)
            self._honours_conditions = False
        except AlreadyStored:
            self._honours_conditions = True
        except StorageError:  # the object is stored; the next put will probe again
            pass
        return stored

    async def _put_in_parts(
        self,
        key: str,
        source: bytes | Path,
        size: int,
        condition: Mapping[str, str],
        resumable: bool,
    ) -> PutResult:
        async def read(start: int, n: int, buffer: memoryview, with_md5: bool) -> Body:
            perform = partial(read_body, source, start, n, buffer, with_md5=with_md5)
            return await read_source(perform, n, self._shown(key))

        call = self._caller("put", key)
        upload = Multipart(
            call=call,
            send=SentParts(call=call, read=read, buffers=self._buffers, checksums=self._checksums),
            checksums=self._checksums,
            budget=self._budget,
            bucket_key=self._bucket_key(key),
            condition=condition,
            size=size,
            each=part_bytes(size),
            begun=self._unfinished.take(key) if resumable else None,
            leave=partial(self._unfinished.leave, key) if resumable else None,
        )
        try:
            return await upload.upload()
        except (KeyError, TypeError) as error:
            cause = f"the storage sent an answer that S3 would not send ({error!r})"
            raise StorageUnavailable("put", self._shown(key), cause, ODD) from error

    async def copy(self, source: ObjectInfo, key: str) -> PutResult:
        asked: dict[str, Any] = {"CopySource": self._bucket_key(source.key)}
        if source.etag is not None:
            asked["CopySourceIfMatch"] = f'"{source.etag}"'
        bucket_key = self._bucket_key(key)
        call = self._caller("copy", key)
        try:
            if source.size > COPY_AT_MOST_BYTES:
                return await Multipart(
                    call=call,
                    send=CopiedParts(call=call, source=asked),
                    budget=self._budget,
                    bucket_key=bucket_key,
                    size=source.size,
                    each=COPIED_PART_BYTES,
                ).upload()

            async def copied(s3: Any) -> str:
                answer = await s3.copy_object(**bucket_key, **asked)
                return str(answer["ETag"]).strip('"')

            etag = await call(copied, allowance_s(source.size))
        except AlreadyStored as error:  # the source has another ETag
            cause = "another object is there now"
            raise NotStored("copy", self._shown(source.key), cause) from error
        return PutResult(size=source.size, etag=etag)

    async def holds(self, entry: ObjectInfo, source: Path) -> bool:
        size = from_source(lambda: source_size(source), self._shown(entry.key))
        etag = entry.etag
        if etag is None or entry.size != size:
            return False
        compare = partial(is_etag_of, etag, source, size)
        return await read_source(compare, size, self._shown(entry.key))

    async def unfinished(self, prefix: str = "") -> list[str]:
        try:
            uploads = await self._list_entries(prefix, UPLOADS)
        except (StorageRefused, NotStored):  # without permission to list, nothing is continued
            return []
        await self._unfinished.add(uploads)
        return self._unfinished.keys(prefix)

    async def abandon(self, prefix: str = "") -> None:
        await self._unfinished.abandon(prefix)

    async def _abort(self, key: str, upload_id: str) -> None:
        await abort(self._caller("abort", key), {**self._bucket_key(key), "UploadId": upload_id})

    async def get(self, key: str, target: Path) -> int:
        with os_errors("get", self._shown(key)), new_file_for(target) as file:
            return (await self._download(key, file.fileno()).perform())[0]

    async def get_hashed(self, entry: ObjectInfo, target: Path, algorithm: str | None) -> str:
        with os_errors("get", self._shown(entry.key)), new_file(target) as descriptor:
            return (await self._download(entry.key, descriptor).perform(entry.size, algorithm))[1]

    def _download(self, key: str, descriptor: int) -> RangedDownload:
        return RangedDownload(
            call=self._caller("get", key),
            slots=self._arriving,
            bucket_key=self._bucket_key(key),
            where=self._shown(key),
            descriptor=descriptor,
        )

    async def read(self, key: str) -> bytes:
        bucket_key = self._bucket_key(key)

        return await self._call("read", key, lambda s3: s3.read_object(**bucket_key))

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        entries: dict[str, ObjectInfo] = {}
        for item in await self._list_entries(prefix, OBJECTS):
            entry = self._entry(item)
            # Consoles and other tools create empty objects that stand for folders.
            if not item["Key"].endswith("/") and (leftovers or not is_leftover(entry.name)):
                entries[entry.key] = entry
        return [entries[key] for key in sorted(entries)]

    async def _list_entries(self, prefix: str, kind: Listing) -> Sequence[Mapping[str, Any]]:
        """List the entries of this kind in the folder and below."""

        async def ask(query: dict[str, Any]) -> Mapping[str, Any]:
            return await self._call(
                "list", prefix, lambda s3: getattr(s3, kind.operation)(**query)
            )

        query = {"Bucket": self._bucket, "Prefix": self._prefix + folder_prefix(prefix)}
        try:
            return await listed(ask, query, kind)
        except EndlessListing as error:
            raise error.during("list", self._shown(prefix)) from error

    async def head(self, key: str) -> ObjectInfo | None:
        bucket_key = self._bucket_key(key)
        answer = await self._call("head", key, lambda s3: s3.find_object(**bucket_key))
        if answer is None:
            return None
        return self._entry(
            {**answer, "Key": bucket_key["Key"], "Size": answer.get("ContentLength")}
        )

    async def delete(self, keys: Iterable[str]) -> None:
        deletion = Deletion(call=self._call, bucket=self._bucket, prefix=self._prefix)
        if failures := await deletion.perform([check_key(key) for key in keys]):
            raise deletion_failure(self.where, failures)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _bucket_key(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _shown(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    async def _open(self) -> Client:
        async with self._opening:
            if self._client is None:
                check_extra(self.where)
                client = Client(self._options, self._bucket)
                if is_set(self._options, "allow_bucket_creation"):
                    try:
                        await client.make_bucket(self._options.get("region"))
                    except BaseException:
                        await client.close()
                        raise
                self._client = client
            return self._client

    async def _call(
        self,
        operation: str,
        key: str,
        request: Callable[[Any], Awaitable[R]],
        deadline_s: float | None = LOOKUP_S,
    ) -> R:
        try:
            async with asyncio.timeout(deadline_s):
                return await request(self._client or await self._open())
        except Exception as error:  # botocore raises many types while it looks for keys
            raise translated(error, operation, self._shown(key), self._secrets) from error

    def _caller(self, operation: str, key: str) -> PartRequest:
        async def call(request: Callable[[Any], Awaitable[R]], deadline_s: float | None) -> R:
            return await self._call(operation, key, request, deadline_s)

        return call

    def _entry(self, item: Mapping[str, Any]) -> ObjectInfo:
        return entry_of(item, self._prefix, self.where)


async def _only_open(client: Any) -> None:
    """The client is open, so the extra is installed, which reading a body needs, too."""


def check_extra(where: str) -> None:
    """Raise StorageRefused, naming the extra and its packages, if one is missing.

    pyarrow's own S3 filesystem is not used in its place: it has no conditional puts, which keep an
    older run out of the storage of a newer one. Users may pass it as `storage_filesystem`.
    """
    for package in _PACKAGES:
        try:
            package.check()
        except ImportError as error:
            fault, command = str(error).partition(": ")[0], f"pip install {package.requirements()}"
            cause = f"S3 needs the extra holdfast[s3], and {fault}"
            raise StorageRefused("open", where, cause, f"Install it: {command}") from None


def _refused(
    errors: Iterable[Mapping[str, Any]], named: Mapping[str, str]
) -> dict[str, StorageError]:
    """The failures in an answer, by key. A failure with an unknown key counts as well, because the
    deletion that it belongs to is not known."""
    failures: dict[str, StorageError] = {}
    for item in errors:
        name = str(item.get("Key", ""))
        key = named.get(name, f"{name!r:.100}, which was not requested")
        failures[key] = refused_object(item.get("Code", ""), item.get("Message", ""), key)
    return failures


class DeleteRequest(Protocol):
    """Performs a request for an operation on a key, and translates its errors."""

    def __call__(
        self, operation: str, key: str, request: Callable[[Any], Awaitable[R]]
    ) -> Awaitable[R]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Deletes keys below a prefix: a thousand per request, or one by one if the server requires
    it."""

    call: DeleteRequest
    bucket: str
    prefix: str

    async def perform(self, keys: Sequence[str]) -> dict[str, StorageError]:
        """Try all keys; return the failures by key. Raises StorageError if no request succeeds."""
        failures: dict[str, StorageError] = {}
        for start in range(0, len(keys), _BATCH):
            failures |= await self._delete_batch(keys[start : start + _BATCH])
        return failures

    async def _delete_batch(self, keys: Sequence[str]) -> dict[str, StorageError]:
        # The batch is sent as XML 1.0, which cannot contain control characters.
        named = {self.prefix + key: key for key in keys if key.isprintable()}
        single = [key for key in keys if not key.isprintable()]
        failures: dict[str, StorageError] = {}
        if named:
            try:
                errors = await self.call("delete", "", lambda s3: s3.delete_objects([*named]))
                failures |= _refused(errors, named)
            except StorageRefused as error:
                if code_and_status(cause_of(error))[0] not in _NO_BATCHES:
                    raise
                single = list(keys)

        async def delete_one(key: str) -> None:
            bucket_key = {"Bucket": self.bucket, "Key": self.prefix + key}
            try:
                await self.call("delete", key, lambda s3: s3.delete_object(**bucket_key))
            except NotStored:
                return
            except StorageError as error:
                failures[key] = error

        await for_each(delete_one, single, at_once=AT_ONCE)
        return failures
