"""Puts a large object in parts: several at once, with limited memory.

A failed upload is aborted or, on request, left to be continued. Then parts that the storage
proves to have are not sent again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, Protocol, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import NotStored, StorageError, StorageRefused, StorageUnavailable
from holdfast.syncer.files.durable import unique
from holdfast.syncer.stores.retry import moved_to
from holdfast.syncer.stores.s3.checksums import ALGORITHM, CRC, SUMMED, Checksums
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
    """Performs a request with a deadline, if it has none itself, and translates its errors."""

    def __call__(
        self, request: Callable[[Any], Awaitable[R]], deadline_s: float | None
    ) -> Awaitable[R]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """What the storage has, or confirmed, of a part: its ETag, its CRC-32C if it is known, and
    whether they prove its bytes."""

    etag: str
    crc: str | None = None
    is_proven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPart:
    """A part of the object. `there` is that part in an interrupted upload."""

    number: int
    start: int
    size: int
    there: StoredPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An upload that was begun. `is_summed`: its parts must have their CRC-32C."""

    upload_id: str
    is_summed: bool


class SendPart(Protocol):
    """Adds one part to the upload (its bucket, key and id)."""

    def __call__(
        self, upload: Mapping[str, str], part: UploadPart, *, is_summed: bool
    ) -> Awaitable[StoredPart]: ...


def part_bytes(size: int) -> int:
    """The size of parts: 8 MiB, or more whole MiB if there would be over 10,000 parts."""
    mebibyte = 1 << 20
    least = -(-size // _MAX_PARTS)
    return max(PART_BYTES, -(-least // mebibyte) * mebibyte)


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipart:
    """An upload of `size` bytes to `bucket_key`, with `each` bytes per part.

    `begun` is an interrupted upload to continue. If the upload fails, `leave` is called with it,
    so that it can be continued; with None it is aborted. Without `checksums` the parts have none.
    """

    call: PartRequest
    send: SendPart
    budget: BufferBudget
    bucket_key: Mapping[str, str]
    size: int
    each: int
    condition: Mapping[str, str] = field(default_factory=dict)
    checksums: Checksums | None = None
    begun: Begun | None = None
    leave: Callable[[Begun], None] | None = None

    async def upload(self) -> PutResult:
        """Send all parts and complete. Raises StorageError.

        What the server refuses is begun again: an older upload that wants other checksums than it
        lists, and one with checksums if the server does not know them.
        """
        mark = put_mark({"IfNoneMatch": "*"})
        if (interrupted := await self._find_interrupted()) is not None:
            with suppress(StorageRefused):
                return await self._perform(*interrupted, mark)
        begun = await self._start(mark)
        try:
            return await self._perform(begun, {}, mark)
        except StorageRefused:
            if self.checksums is None or not begun.is_summed:
                raise
        self.checksums.knows_crc = False
        return await self._perform(await self._start(mark), {}, mark)

    async def _perform(
        self, begun: Begun, there: Mapping[int, StoredPart], mark: Mapping[str, Any]
    ) -> PutResult:
        upload = {**self.bucket_key, "UploadId": begun.upload_id}
        try:
            sent = await self._send_parts(upload, there, begun.is_summed)
            etag = await self._complete(upload, sent, begun.is_summed, mark)
        except BaseException as error:
            if self.leave is None or isinstance(error, StorageRefused):
                await abort(self.call, upload)
            else:
                self.leave(begun)
            raise
        if etag is not None and all(part.is_proven for part in sent.values()):
            return PutResult(size=self.size, etag=etag)
        return await self._confirm()

    async def _start(self, mark: Mapping[str, Any]) -> Begun:
        async def create(s3: Any, summed: Mapping[str, str]) -> Begun:
            started = await s3.create_multipart_upload(**self.bucket_key, **mark, **summed)
            return Begun(upload_id=str(started["UploadId"]), is_summed=bool(summed))

        checksums = self.checksums
        if checksums is None:
            return await self.call(lambda s3: create(s3, {}), _REQUEST_S)
        return await self.call(
            lambda s3: checksums.trying(lambda with_crc: create(s3, SUMMED if with_crc else {})),
            _REQUEST_S,
        )

    async def _find_interrupted(self) -> tuple[Begun, dict[int, StoredPart]] | None:
        """The interrupted upload and its parts that have the right size, if it exists."""
        if self.begun is None:
            return None
        query = {**self.bucket_key, "UploadId": self.begun.upload_id}

        async def ask(query: dict[str, Any]) -> Mapping[str, Any]:
            return await self.call(lambda s3: s3.list_parts(**query), _REQUEST_S)

        try:
            parts = await listed(ask, query, PARTS)
        except StorageUnavailable:
            raise
        except StorageError:  # it was aborted or completed, or cannot be listed
            return None
        found = {
            part["PartNumber"]: StoredPart(etag=part["ETag"], crc=part.get(CRC))
            for part in parts
            if part["Size"] == self._bytes_of(part["PartNumber"])
        }
        is_summed = self.begun.is_summed or any(CRC in part for part in parts)
        return replace(self.begun, is_summed=is_summed), found

    def _bytes_of(self, number: int) -> int:
        return min(self.each, self.size - (number - 1) * self.each)

    async def _send_parts(
        self, upload: Mapping[str, str], there: Mapping[int, StoredPart], is_summed: bool
    ) -> dict[int, StoredPart]:
        sent: dict[int, StoredPart] = {}

        async def send(number: int) -> None:
            size = self._bytes_of(number)
            part = UploadPart(
                number=number, start=(number - 1) * self.each, size=size, there=there.get(number)
            )
            async with self.budget.take(min(size, PART_BYTES)):
                sent[number] = await self.send(upload, part, is_summed=is_summed)
            moved_to(f"put {self.bucket_key['Key']}", len(sent))

        parts = -(-self.size // self.each)
        await for_each(send, range(1, parts + 1), at_once=_PARTS_AT_ONCE)
        return sent

    async def _complete(
        self,
        upload: Mapping[str, str],
        sent: Mapping[int, StoredPart],
        is_summed: bool,
        mark: Mapping[str, Any],
    ) -> str | None:
        """Returns the ETag if it is that of these parts."""
        parts = [
            {"PartNumber": number, "ETag": part.etag, **({CRC: part.crc} if is_summed else {})}
            for number, part in sorted(sent.items())
        ]
        etag = composite([part.etag for _, part in sorted(sent.items())])

        async def complete(s3: Any) -> str | None:
            try:
                answer = await s3.complete_multipart_upload(
                    **upload, MultipartUpload={"Parts": parts}, **self.condition
                )
                return etag if str(answer.get("ETag", "")).strip('"') == etag else None
            except Exception as error:
                # If the answer to a completion was lost, the repeated request finds the object and
                # no upload.
                code, status = code_and_status(error)
                again = status == 412 or code == "NoSuchUpload"
                if again and await put_by_us(s3, self.bucket_key, mark, etag) is not None:
                    return None
                if code == "NoSuchUpload":
                    cause = "its upload was aborted meanwhile"
                    raise StorageUnavailable("put", self.bucket_key["Key"], cause) from error
                raise

        return await self.call(complete, _REQUEST_S)

    async def _confirm(self) -> PutResult:
        found = await self.call(lambda s3: s3.find_object(**self.bucket_key), _REQUEST_S)
        if found is None:
            cause = "the store has confirmed it, but does not have it"
            raise NotStored("put", self.bucket_key["Key"], cause)
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


def composite(etags: Sequence[str]) -> str | None:
    """The ETag of an object of these parts; None if their ETags are not MD5 sums."""
    try:
        sums = b"".join(bytes.fromhex(etag.strip('"')) for etag in etags)
    except ValueError:
        return None
    return f"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(etags)}"


async def put_by_us(
    s3: Any, bucket_key: Mapping[str, str], mark: Mapping[str, Any], etag: str | None = None
) -> Mapping[str, Any] | None:
    """The existing object if it was put with this mark, or has this ETag.

    Raises what botocore raises, except if there is no object.
    """
    if not mark:
        return None
    try:
        found = await s3.head_object(**bucket_key)
    except Exception as error:
        if code_and_status(error)[1] != 404:
            raise
        return None
    is_marked = found.get("Metadata", {}).get(_MARK) == mark["Metadata"][_MARK]
    return found if is_marked or (etag and found["ETag"].strip('"') == etag) else None


class UnfinishedUploads:
    """Such uploads by key, as far as they are known; one per key."""

    def __init__(
        self, prefix: str, where: str, abort: Callable[[str, str], Awaitable[None]]
    ) -> None:
        """`prefix` comes before each key in the bucket; `abort` takes a key and an id."""
        self._prefix = prefix
        self._where = where
        self._abort = abort
        self._begun: dict[str, Begun] = {}

    def take(self, key: str) -> Begun | None:
        return self._begun.pop(key, None)

    def leave(self, key: str, begun: Begun) -> None:
        self._begun[key] = begun

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
            older = self._begun.get(key)
            if older is not None and older.upload_id != upload_id:
                await self._abort(key, older.upload_id)
            is_summed = upload.get("ChecksumAlgorithm") == ALGORITHM
            self._begun[key] = Begun(upload_id=upload_id, is_summed=is_summed)

    def keys(self, prefix: str) -> list[str]:
        """The keys in the folder `prefix` and below, sorted."""
        below = folder_prefix(prefix)
        return sorted(key for key in self._begun if key.startswith(below))

    async def abandon(self, prefix: str) -> None:
        """Abort the uploads in the folder `prefix` and below."""
        for key in self.keys(prefix):
            await self._abort(key, self._begun.pop(key).upload_id)
