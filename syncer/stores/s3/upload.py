"""Uploads objects to S3: in one request, in parts, or as copies of other objects.

A put counts if its answer proves that the body has arrived (`Checksums`), or otherwise if the
object exists with the right size. An upload in parts sends several at once, with limited memory.
One that fails is aborted or, on request, left to be continued: then parts that the storage proves
to have are not sent again.

A server that knows CRC-32C checks it and returns it, here at 20 GiB/s. MD5 takes 30 times as long,
but other servers know nothing else: they check the Content-MD5 and return it as the ETag (unless
the object is encrypted). The first body is sent with both; later ones with the CRC-32C if the
server has returned it, and with the MD5 if it has ignored or refused it. A part of an upload is
sent without MD5 once ETags are MD5 sums: the server need not compute it twice, and the ETag of a
sum that it was never told proves more than its silence.
"""

from __future__ import annotations

import base64
import hashlib
import mmap as mmap_module
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import (
    NotStored,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    os_errors,
)
from holdfast.syncer.files.durable import opened, unique
from holdfast.syncer.stores.retry import moved_to
from holdfast.syncer.stores.s3.answers import (
    PARTS,
    code_and_status,
    listed,
    odd_answer,
    refuses_checksum,
)
from holdfast.syncer.stores.s3.client import BufferBudget
from holdfast.syncer.stores.store import PutResult, allowance_s, folder_prefix, for_each

R = TypeVar("R")

_READ_INLINE_BYTES = 64 << 10
_SMALL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The bytes of one request, their CRC-32C as S3 writes it, and their MD5 if it is needed."""

    data: bytes | memoryview
    crc: str
    md5: bytes | None = None


def body_of(data: bytes | memoryview, *, with_md5: bool = False) -> Body:
    """The body with its sums. A small one always has its MD5, which takes no time."""
    from crc32c import crc32c

    crc = base64.b64encode(crc32c(data).to_bytes(4, "big")).decode()
    is_hashed = with_md5 or len(data) <= _SMALL_BYTES
    return Body(data=data, crc=crc, md5=_md5(data) if is_hashed else None)


def _md5(data: bytes | memoryview) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


async def md5_of(body: Body) -> bytes:
    """The MD5 of a body; in a thread if it must be computed: 8 MiB take 12 ms."""
    if body.md5 is not None:
        return body.md5
    import anyio.to_thread

    return await anyio.to_thread.run_sync(_md5, body.data)


def read_body(
    source: bytes | Path,
    start: int,
    size: int,
    buffer: memoryview | None = None,
    *,
    with_md5: bool = False,
) -> Body:
    """Read `size` bytes of the source from `start` on, and compute their sums; a file is read into
    the buffer.

    Raises OSError; EOFError if the file became shorter.
    """
    data: bytes | memoryview
    if isinstance(source, bytes):
        data = source if size == len(source) else memoryview(source)[start : start + size]
    else:
        with opened(source) as descriptor:
            data = _read(descriptor, start, size, buffer)
    if len(data) != size:
        raise EOFError("the file became shorter while it was uploaded")
    return body_of(data, with_md5=with_md5)


def _read(descriptor: int, start: int, size: int, buffer: memoryview | None) -> bytes | memoryview:
    if buffer is None:
        return os.pread(descriptor, size, start)
    return buffer[: os.preadv(descriptor, [buffer], start)]


async def read_source(perform: Callable[[], R], size: int, where: str) -> R:
    """Call `perform`, which reads `size` bytes of the local source; in a thread if there are many.

    8 MiB take 3 ms, or 15 with their MD5. 64 KiB take 0.2 ms, as long as a change of threads.
    Raises StorageError.
    """
    if size <= _READ_INLINE_BYTES:
        return from_source(perform, where)
    import anyio.to_thread

    return await anyio.to_thread.run_sync(lambda: from_source(perform, where))


def from_source(perform: Callable[[], R], where: str) -> R:
    """Call `perform`, which reads the local source, and translate its errors to StorageError."""
    try:
        with os_errors("put", where):
            return perform()
    except EOFError as error:
        raise StorageUnavailable("put", where, str(error)) from error


CRC = "ChecksumCRC32C"
ALGORITHM = "CRC32C"
# An upload is completed, and the sum of the whole object known, without those of its parts.
SUMMED = {"ChecksumAlgorithm": ALGORITHM, "ChecksumType": "FULL_OBJECT"}

Fields = Mapping[str, Any]


@dataclass(slots=True)
class Checksums:
    """What the answers of a bucket's server have shown.

    `knows_crc`: it has returned the CRC-32C; None until it was asked. `etags_are_md5`: the last
    ETag that was compared is an MD5 sum; those of encrypted objects are not.
    """

    knows_crc: bool | None = None
    etags_are_md5: bool = False

    async def trying(self, send: Callable[[bool], Awaitable[R]]) -> R:
        """Call `send(with_crc)`; again without the CRC-32C if the server refuses it.

        Raises what `send` raises.
        """
        if self.knows_crc is False:
            return await send(False)
        try:
            return await send(True)
        except Exception as error:
            if not refuses_checksum(error):
                raise
        answer = await send(False)
        self.knows_crc = False
        return answer

    async def put(
        self, send: Callable[..., Awaitable[Fields]], body: Body, key: str
    ) -> tuple[Fields, bool]:
        """Call `send` with the body and its checksum. Returns the answer, and whether it proves
        that the body has arrived. Raises what `send` raises, and StorageUnavailable."""

        async def sending(with_crc: bool) -> Fields:
            return await send(Body=body.data, **await self._sums(body, with_crc))

        answer = await self.trying(sending)
        return answer, await self.proves(answer, body, key)

    async def put_part(
        self, send: Callable[..., Awaitable[Fields]], body: Body, key: str, *, is_summed: bool
    ) -> tuple[str, bool]:
        """Like `put`, for a part of an upload whose parts must have their CRC-32C or have none.
        Returns the ETag, and whether the answer proves that the part has arrived."""
        is_bare = self.etags_are_md5 and not is_summed
        sums = {} if is_bare else await self._sums(body, is_summed)
        answer = await send(Body=body.data, **sums)
        is_proven = await self.proves(answer, body, key, is_asked=is_summed)
        if is_bare and not is_proven:  # another part has shown that ETags are no MD5 sums
            raise _other_bytes(key, "MD5")
        return str(answer["ETag"]), is_proven

    async def proves(self, answer: Fields, body: Body, key: str, *, is_asked: bool = True) -> bool:
        """Whether the answer proves that the bytes have arrived. `is_asked`: they were sent with
        their CRC-32C.

        Raises StorageUnavailable if it proves that other bytes have arrived, because some servers
        do not check. If an ETag does so twice in a row, the bucket no longer uses MD5 sums.
        """
        crc, etag = answer.get(CRC), str(answer.get("ETag", "")).strip('"')
        if crc is not None and crc != body.crc:
            raise _other_bytes(key, "CRC-32C")
        if crc is not None:
            self.knows_crc = True
            if body.md5 is not None:
                self.etags_are_md5 = etag == body.md5.hex()
            return True
        if is_asked:
            self.knows_crc = False
        if etag == (await md5_of(body)).hex():
            self.etags_are_md5 = True
            return True
        if self.etags_are_md5:
            self.etags_are_md5 = False
            raise _other_bytes(key, "MD5")
        return False

    async def _sums(self, body: Body, with_crc: bool) -> dict[str, str]:
        """The checksums of a request."""
        found = {CRC: body.crc} if with_crc else {}
        if not (with_crc and self.knows_crc):
            found["ContentMD5"] = base64.b64encode(await md5_of(body)).decode()
        return found

    async def are_there(self, etag: str, crc: str | None, body: Body) -> bool:
        """True if a part of an interrupted upload, with this ETag and perhaps a CRC-32C, has these
        bytes.

        They may be of another attempt, and two of 4 billion different parts have the same CRC-32C:
        it counts only if the bucket's ETags prove nothing.
        """
        if etag.strip('"') == (await md5_of(body)).hex():
            return True
        return not self.etags_are_md5 and crc == body.crc


def _other_bytes(key: str, by: str) -> StorageUnavailable:
    return StorageUnavailable(
        "put", key, f"the store has bytes that differ from those sent (by their {by})"
    )


MULTIPART_FROM_BYTES = 16 << 20
PART_BYTES = 8 << 20
_MAX_PARTS = 10_000
_PARTS_AT_ONCE = 4
_REQUEST_S = 60.0
_ABORT_S = 10.0
_MARK = "holdfast-put"
_LACKS = "the store has confirmed it, but does not have it"


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
            upload_id = await s3.create_multipart_upload(**self.bucket_key, **mark, **summed)
            return Begun(upload_id=upload_id, is_summed=bool(summed))

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
                found = await s3.complete_multipart_upload(parts, **upload, **self.condition)
                return etag if found == etag else None
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
            raise NotStored("put", self.bucket_key["Key"], _LACKS)
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
    """Metadata that identifies a conditional put if its answer was lost: the client repeats a
    request when a connection breaks, and the second request finds the object of the first."""
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

    Raises what the client raises.
    """
    if not mark:
        return None
    if (found := await s3.find_object(**bucket_key)) is None:
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


# S3 copies at most 5 GiB per request or part.
COPY_AT_MOST_BYTES = 5 << 30
COPIED_PART_BYTES = 1 << 30
_HUGE_BYTES = 4 << 20
_HUGE: int | None = getattr(mmap_module, "MADV_HUGEPAGE", None)


async def put_whole(
    s3: Any,
    bucket_key: Mapping[str, str],
    body: Body,
    condition: Mapping[str, str],
    checksums: Checksums,
) -> PutResult:
    """Put an object in one request. Raises what the client raises, and StorageError."""
    size, mark = len(body.data), put_mark(condition)
    send = partial(s3.put_object, **bucket_key, **mark, **condition)
    try:
        answer, is_proven = await checksums.put(send, body, bucket_key["Key"])
    except Exception as error:
        if code_and_status(error)[1] != 412:
            raise
        if (found := await put_by_us(s3, bucket_key, mark)) is None:
            raise
        return PutResult(size=size, etag=found["ETag"].strip('"'))
    given = str(answer.get("ETag", "")).strip('"')
    if not is_proven:
        found = await s3.find_object(**bucket_key)
        if found is None:
            raise NotStored("put", bucket_key["Key"], _LACKS)
        if found["ContentLength"] != size:
            cause = f"{size} bytes were sent, but the store has {found['ContentLength']}"
            raise StorageUnavailable("put", bucket_key["Key"], cause)
    return PutResult(size=size, etag=given or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentParts:
    """Sends parts that `read(start, size, buffer, with_md5)` reads locally."""

    call: PartRequest
    read: Callable[[int, int, memoryview, bool], Awaitable[Body]]
    buffers: Buffers
    checksums: Checksums

    async def __call__(
        self, upload: Mapping[str, str], part: UploadPart, *, is_summed: bool
    ) -> StoredPart:
        checksums, there = self.checksums, part.there
        with self.buffers.lent(part.size) as buffer:
            with_md5 = there is not None or not is_summed or not checksums.knows_crc
            body = await self.read(part.start, part.size, buffer, with_md5)
            if there is not None and await checksums.are_there(there.etag, there.crc, body):
                return StoredPart(etag=there.etag, crc=body.crc, is_proven=True)

            async def send(s3: Any) -> tuple[str, bool]:
                sending = partial(s3.upload_part, **upload, PartNumber=part.number)
                return await checksums.put_part(sending, body, upload["Key"], is_summed=is_summed)

            etag, is_proven = await self.call(send, allowance_s(part.size))
        return StoredPart(etag=etag, crc=body.crc, is_proven=is_proven)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedParts:
    """Copies parts from another object of the bucket."""

    call: PartRequest
    source: Mapping[str, Any]

    async def __call__(
        self, upload: Mapping[str, str], part: UploadPart, *, is_summed: bool
    ) -> StoredPart:
        stretch = f"bytes={part.start}-{part.start + part.size - 1}"
        answer = await self.call(
            lambda s3: s3.upload_part_copy(
                **upload, **self.source, PartNumber=part.number, CopySourceRange=stretch
            ),
            allowance_s(part.size),
        )
        return StoredPart(etag=str(answer["ETag"]))


@dataclass(slots=True)
class Buffers:
    """Memory for bodies, reused as long as requests are in progress.

    New pages for 8 MiB take as much CPU as their SHA-256, a third of the time to send them; huge
    ones a third of that.
    """

    _free: list[bytearray | mmap] = field(default_factory=list)
    _lent: int = 0

    @contextmanager
    def lent(self, size: int) -> Any:
        """A buffer of `size` bytes, for the duration of the block."""
        usable = self._free.pop() if self._free else _memory(size)
        buffer = usable if len(usable) >= size else _memory(size)
        self._lent += 1
        try:
            yield memoryview(buffer)[:size]
        finally:
            self._lent -= 1
            self._free.append(buffer)
            if not self._lent:
                self._free.clear()


def _memory(size: int) -> bytearray | mmap:
    """New memory, in huge pages if it has several of them and the kernel gives some."""
    if size < _HUGE_BYTES or _HUGE is None:
        return bytearray(size)
    memory = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        memory.madvise(_HUGE)
    return memory


def is_etag_of(etag: str, path: Path, size: int) -> bool:
    """True if an object with this ETag, put by holdfast, has the file's bytes. Raises OSError."""
    digest, _, parts = etag.partition("-")
    each = part_bytes(size) if parts else max(size, 1)
    if parts and (size < MULTIPART_FROM_BYTES or parts != str(-(-size // each))):
        return False
    with path.open("rb", buffering=0) as file:
        sums = [_md5_of_next(file, each) for _ in range(max(1, -(-size // each)))]
    found = hashlib.md5(b"".join(sums), usedforsecurity=False).hexdigest() if parts else ""
    return digest == (found or sums[0].hex())


def _md5_of_next(file: Any, size: int) -> bytes:
    digest = hashlib.md5(usedforsecurity=False)
    left, buffer = size, memoryview(bytearray(min(size, 1 << 20)))
    while left and (count := file.readinto(buffer[:left])):
        digest.update(buffer[:count])
        left -= count
    return digest.digest()
