"""Puts a large object in parts: several at once, with limited memory.

A failed upload is aborted or, on request, left to be continued. Then parts that the storage has
with the right MD5 are not sent again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Protocol, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageError, StorageRefused, StorageUnavailable
from holdfast.syncer.files.durable import unique
from holdfast.syncer.stores.s3.client import BufferBudget
from holdfast.syncer.stores.s3.errors import code_and_status
from holdfast.syncer.stores.s3.pages import PARTS, listed, odd_answer
from holdfast.syncer.stores.store import PutResult, folder_prefix, for_each

R = TypeVar("R")

MULTIPART_FROM_BYTES = 16 << 20
PART_BYTES = 8 << 20
_MAX_PARTS = 10_000
_PARTS_AT_ONCE = 4
_REQUEST_S = 60.0
_ABORT_S = 10.0
_MARK = "holdfast-put"


class PartRequest(Protocol):
    """Performs a request with a deadline, and translates its errors."""

    def __call__(
        self, request: Callable[[Any], Awaitable[R]], deadline_s: float
    ) -> Awaitable[R]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPart:
    """A part of the object. `there` is the ETag of that part in an interrupted upload."""

    number: int
    start: int
    size: int
    there: str | None = None


class SendPart(Protocol):
    """Adds one part to the upload (its bucket, key and id), and returns the part's ETag."""

    def __call__(self, upload: Mapping[str, str], part: UploadPart) -> Awaitable[str]: ...


def part_bytes(size: int) -> int:
    """The size of parts: 8 MiB, or more whole MiB if there would be over 10,000 parts."""
    mebibyte = 1 << 20
    least = -(-size // _MAX_PARTS)
    return max(PART_BYTES, -(-least // mebibyte) * mebibyte)


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipart:
    """An upload of `size` bytes to `bucket_key`, with `each` bytes per part.

    `begun` is the id of an interrupted upload to continue. If the upload fails, `leave` is called
    with its id, so that it can be continued; with None it is aborted.
    """

    call: PartRequest
    send: SendPart
    budget: BufferBudget
    bucket_key: Mapping[str, str]
    size: int
    each: int
    condition: Mapping[str, str] = field(default_factory=dict)
    begun: str | None = None
    leave: Callable[[str], None] | None = None

    async def upload(self) -> PutResult:
        """Send all parts and complete. Raises StorageError."""
        mark = put_mark({"IfNoneMatch": "*"})
        upload_id, there = await self._find_interrupted() or (await self._start(mark), {})
        upload = {**self.bucket_key, "UploadId": upload_id}
        try:
            etags = await self._send_parts(upload, there)
            await self._complete(upload, etags, mark)
        except BaseException as error:
            if self.leave is None or isinstance(error, StorageRefused):
                await abort(self.call, upload)
            else:
                self.leave(upload_id)
            raise
        return await self._confirm()

    async def _start(self, mark: Mapping[str, Any]) -> str:
        started = await self.call(
            lambda s3: s3.create_multipart_upload(**self.bucket_key, **mark), _REQUEST_S
        )
        return str(started["UploadId"])

    async def _find_interrupted(self) -> tuple[str, dict[int, tuple[int, str]]] | None:
        """The id of the interrupted upload with the sizes and ETags of its parts, if it exists."""
        if self.begun is None:
            return None
        query = {**self.bucket_key, "UploadId": self.begun}

        async def ask(query: dict[str, Any]) -> Mapping[str, Any]:
            return await self.call(lambda s3: s3.list_parts(**query), _REQUEST_S)

        try:
            parts = await listed(ask, query, PARTS)
        except StorageUnavailable:
            raise
        except StorageError:  # it was aborted or completed, or cannot be listed
            return None
        return self.begun, {part["PartNumber"]: (part["Size"], part["ETag"]) for part in parts}

    async def _send_parts(
        self, upload: Mapping[str, str], there: Mapping[int, tuple[int, str]]
    ) -> dict[int, str]:
        sent: dict[int, str] = {}

        async def send(number: int) -> None:
            start = (number - 1) * self.each
            size = min(self.each, self.size - start)
            found_size, etag = there.get(number, (0, ""))
            left = etag if found_size == size else None
            async with self.budget.take(min(size, PART_BYTES)):
                part = UploadPart(number=number, start=start, size=size, there=left)
                sent[number] = await self.send(upload, part)

        parts = -(-self.size // self.each)
        await for_each(send, range(1, parts + 1), at_once=_PARTS_AT_ONCE)
        return sent

    async def _complete(
        self, upload: Mapping[str, str], etags: Mapping[int, str], mark: Mapping[str, Any]
    ) -> None:
        parts = [{"PartNumber": number, "ETag": etags[number]} for number in sorted(etags)]

        async def complete(s3: Any) -> None:
            try:
                await s3.complete_multipart_upload(
                    **upload, MultipartUpload={"Parts": parts}, **self.condition
                )
            except Exception as error:
                # If the answer to a completion was lost, the repeated request finds the object and
                # no upload.
                code, status = code_and_status(error)
                again = status == 412 or code == "NoSuchUpload"
                if again and await was_put_by_us(s3, self.bucket_key, mark, composite(etags)):
                    return
                if code == "NoSuchUpload":
                    cause = "its upload was aborted meanwhile"
                    raise StorageUnavailable("put", self.bucket_key["Key"], cause) from error
                raise

        await self.call(complete, _REQUEST_S)

    async def _confirm(self) -> PutResult:
        found = await self.call(lambda s3: s3.head_object(**self.bucket_key), _REQUEST_S)
        if found["ContentLength"] != self.size:
            cause = f"{self.size} bytes were sent, but the store has {found['ContentLength']}"
            raise StorageUnavailable("put", self.bucket_key["Key"], cause)
        return PutResult(size=self.size, etag=found["ETag"].strip('"'))


async def abort(call: PartRequest, upload: Mapping[str, str]) -> None:
    """Abort an upload, so that its parts cost nothing. If this fails, they stay, invisible."""
    import anyio

    with anyio.move_on_after(_ABORT_S, shield=True):
        try:
            await call(lambda s3: s3.abort_multipart_upload(**upload), _ABORT_S)
        except StorageError:
            # The caller reports the original failure. Rules of the bucket may expire the parts.
            return


def put_mark(condition: Mapping[str, str]) -> dict[str, Any]:
    """Metadata that identifies a conditional put if its answer was lost.

    botocore and aiohttp repeat a request when a connection breaks (aiohttp silently), and the
    second request finds the object of the first.
    """
    return {"Metadata": {_MARK: unique()}} if condition else {}


def composite(etags: Mapping[int, str]) -> str | None:
    """The ETag of an object of these parts; None if their ETags are not MD5 sums."""
    try:
        sums = b"".join(bytes.fromhex(etags[number].strip('"')) for number in sorted(etags))
    except ValueError:
        return None
    return f"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(etags)}"


async def was_put_by_us(
    s3: Any, bucket_key: Mapping[str, str], mark: Mapping[str, Any], etag: str | None = None
) -> bool:
    """Whether the existing object was put with this mark, or has this ETag.

    Raises what botocore raises, except if there is no object.
    """
    if not mark:
        return False
    try:
        found = await s3.head_object(**bucket_key)
    except Exception as error:
        if code_and_status(error)[1] != 404:
            raise
        return False
    is_marked = found.get("Metadata", {}).get(_MARK) == mark["Metadata"][_MARK]
    return bool(is_marked or (etag and found["ETag"].strip('"') == etag))


class UnfinishedUploads:
    """The ids of such uploads by key, as far as they are known; one per key."""

    def __init__(
        self, prefix: str, where: str, abort: Callable[[str, str], Awaitable[None]]
    ) -> None:
        """`prefix` comes before each key in the bucket; `abort` takes a key and an id."""
        self._prefix = prefix
        self._where = where
        self._abort = abort
        self._ids: dict[str, str] = {}

    def take(self, key: str) -> str | None:
        return self._ids.pop(key, None)

    def leave(self, key: str, upload_id: str) -> None:
        self._ids[key] = upload_id

    async def add(self, uploads: Iterable[Mapping[str, Any]]) -> None:
        """Add uploads that the storage has listed. Aborts an older upload of the same key.

        Raises StorageError.
        """
        for upload in uploads:
            name, upload_id = upload.get("Key"), upload.get("UploadId")
            if not isinstance(name, str) or not name.startswith(self._prefix) or not upload_id:
                text = f"an upload of {name!r:.100}, which is not in this folder"
                raise odd_answer(self._where, text)
            key = name.removeprefix(self._prefix)
            older = self._ids.get(key)
            if older is not None and older != upload_id:
                await self._abort(key, older)
            self._ids[key] = upload_id

    def keys(self, prefix: str) -> list[str]:
        """The keys in the folder `prefix` and below, sorted."""
        below = folder_prefix(prefix)
        return sorted(key for key in self._ids if key.startswith(below))

    async def abandon(self, prefix: str) -> None:
        """Abort the uploads in the folder `prefix` and below."""
        for key in self.keys(prefix):
            await self._abort(key, self._ids.pop(key))
