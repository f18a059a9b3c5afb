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

import asyncio
import base64
import hashlib
import mmap as mmap_module
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field, replace
from functools import partial
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Any, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    os_errors,
)
from holdfast.syncer.files.durable import opened, unique
from holdfast.syncer.stores.retry import moved_to
from holdfast.syncer.stores.s3.answers import (
    Receipt,
    StoredPart,
    Unfinished,
    answered,
    refuses_checksum,
)
from holdfast.syncer.stores.s3.client import CRC, MARK, MD5, SUMMED, Client, PartOf
from holdfast.syncer.stores.store import ObjectInfo, PutResult, for_each

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
        except StorageError as error:
            if not refuses_checksum(error):
                raise
        answer = await send(False)
        self.knows_crc = False
        return answer

    async def put(
        self, send: Callable[[Mapping[str, str]], Awaitable[Receipt]], body: Body
    ) -> Receipt:
        """Call `send` with the headers for the body. Raises what `send` raises, and
        StorageUnavailable."""

        async def sending(with_crc: bool) -> Receipt:
            return await send(await self._sums(body, with_crc))

        answer = await self.trying(sending)
        return replace(answer, is_proven=await self.proves(answer, body))

    async def put_part(
        self,
        send: Callable[[Mapping[str, str]], Awaitable[Receipt]],
        body: Body,
        *,
        is_summed: bool,
    ) -> Receipt:
        """Like `put`, for a part of an upload whose parts must have their CRC-32C or have none."""
        is_bare = self.etags_are_md5 and not is_summed
        answer = await send({} if is_bare else await self._sums(body, is_summed))
        is_proven = await self.proves(answer, body, is_asked=is_summed)
        if is_bare and not is_proven:  # another part has shown that ETags are no MD5 sums
            raise _other_bytes("MD5")
        return Receipt(etag=answer.etag, crc=body.crc, is_proven=is_proven)

    async def proves(self, answer: Receipt, body: Body, *, is_asked: bool = True) -> bool:
        """Whether the answer proves that the bytes have arrived. `is_asked`: they were sent with
        their CRC-32C.

        Raises StorageUnavailable if it proves that other bytes have arrived, because some servers
        do not check. If an ETag does so twice in a row, the bucket no longer uses MD5 sums.
        """
        if answer.crc is not None:
            if answer.crc != body.crc:
                raise _other_bytes("CRC-32C")
            self.knows_crc = True
            if body.md5 is not None:
                self.etags_are_md5 = answer.etag == body.md5.hex()
            return True
        if is_asked:
            self.knows_crc = False
        if answer.etag == (await md5_of(body)).hex():
            self.etags_are_md5 = True
            return True
        if self.etags_are_md5:
            self.etags_are_md5 = False
            raise _other_bytes("MD5")
        return False

    async def _sums(self, body: Body, with_crc: bool) -> dict[str, str]:
        """The headers with the checksums."""
        found = {CRC: body.crc} if with_crc else {}
        if not (with_crc and self.knows_crc):
            found[MD5] = base64.b64encode(await md5_of(body)).decode()
        return found

    async def are_there(self, etag: str, crc: str | None, body: Body) -> bool:
        """True if a part of an interrupted upload, with this ETag and perhaps a CRC-32C, has these
        bytes.

        They may be of another attempt, and two of 4 billion different parts have the same CRC-32C:
        it counts only if the bucket's ETags prove nothing.
        """
        if etag == (await md5_of(body)).hex():
            return True
        return not self.etags_are_md5 and crc == body.crc


def _other_bytes(by: str) -> StorageUnavailable:
    cause = f"the store has bytes that differ from those sent (by their {by})"
    return StorageUnavailable("put", "", cause)


MULTIPART_FROM_BYTES = 16 << 20
PART_BYTES = 8 << 20
_MAX_PARTS = 10_000
_PARTS_AT_ONCE = 4
_ABORT_S = 10.0
# S3 copies at most 5 GiB per request or part.
COPY_AT_MOST_BYTES = 5 << 30
COPIED_PART_BYTES = 1 << 30


def part_bytes(size: int) -> int:
    """The size of parts: 8 MiB, or more whole MiB if there would be over 10,000 parts."""
    mebibyte = 1 << 20
    least = -(-size // _MAX_PARTS)
    return max(PART_BYTES, -(-least // mebibyte) * mebibyte)


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipart:
    """An upload of `size` bytes to the object `name`, with `each` bytes per part.

    The source is bytes, a file, or another object of the bucket, which is copied. `begun` is an
    interrupted upload to continue. If the upload fails, `leave` is called with it, so that it can
    be continued; with None it is aborted.
    """

    s3: Client
    name: str
    source: bytes | Path | ObjectInfo
    size: int
    each: int
    buffers: Buffers
    checksums: Checksums
    condition: Mapping[str, str] = field(default_factory=dict)
    begun: Unfinished | None = None
    leave: Callable[[Unfinished], None] | None = None

    async def upload(self) -> PutResult:
        """Send all parts and complete. Raises StorageError.

        What the server refuses is begun again: an older upload that wants other checksums than it
        lists, and one with checksums if the server does not know them.
        """
        mark = unique()
        if (interrupted := await self._find_interrupted()) is not None:
            with suppress(StorageRefused):
                return await self._perform(*interrupted, mark)
        begun = await self._start(mark)
        try:
            return await self._perform(begun, {}, mark)
        except StorageRefused:
            if not begun.is_summed:
                raise
        self.checksums.knows_crc = False
        return await self._perform(await self._start(mark), {}, mark)

    async def _perform(
        self, begun: Unfinished, there: Mapping[int, StoredPart], mark: str
    ) -> PutResult:
        try:
            sent = await self._send_parts(begun, there)
            etag = await self._complete(begun, sent, mark)
        except BaseException as error:
            if self.leave is None or isinstance(error, StorageRefused):
                await abort(self.s3, begun)
            else:
                self.leave(begun)
            raise
        if etag is not None and all(part.is_proven for part in sent.values()):
            return PutResult(size=self.size, etag=etag)
        return await confirm(self.s3, self.name, self.size)

    async def _start(self, mark: str) -> Unfinished:
        async def begin(is_summed: bool) -> Unfinished:
            headers = {MARK: mark, **(SUMMED if is_summed else {})}
            upload_id = await self.s3.begin_upload(self.name, headers)
            return Unfinished(name=self.name, upload_id=upload_id, is_summed=is_summed)

        is_copied = isinstance(self.source, ObjectInfo)
        return await (begin(False) if is_copied else self.checksums.trying(begin))

    async def _find_interrupted(self) -> tuple[Unfinished, dict[int, StoredPart]] | None:
        """The interrupted upload and its parts that have the right size, if it exists."""
        if self.begun is None:
            return None
        try:
            parts = await self.s3.parts(self.name, self.begun.upload_id)
        except StorageUnavailable:
            raise
        except StorageError:  # it was aborted or completed, or cannot be listed
            return None
        found = {one.number: one for one in parts if one.size == self._part(one.number)[1]}
        is_summed = self.begun.is_summed or any(part.crc for part in parts)
        return replace(self.begun, is_summed=is_summed), found

    def _part(self, number: int) -> tuple[int, int]:
        """Where a part begins, and its size."""
        start = (number - 1) * self.each
        return start, min(self.each, self.size - start)

    async def _send_parts(
        self, begun: Unfinished, there: Mapping[int, StoredPart]
    ) -> dict[int, Receipt]:
        sent: dict[int, Receipt] = {}

        async def send(number: int) -> None:
            start, size = self._part(number)
            part = PartOf(upload_id=begun.upload_id, number=number, start=start, size=size)
            async with self.buffers.lent(0 if isinstance(self.source, ObjectInfo) else size) as to:
                sent[number] = await self._send(
                    part, to, there.get(number), is_summed=begun.is_summed
                )
            moved_to(f"put {self.name}", len(sent))

        parts = -(-self.size // self.each)
        await for_each(send, range(1, parts + 1), at_once=_PARTS_AT_ONCE)
        return sent

    async def _send(
        self, part: PartOf, buffer: memoryview, there: StoredPart | None, *, is_summed: bool
    ) -> Receipt:
        """Send a part, unless the upload has it already."""
        if isinstance(self.source, ObjectInfo):
            return await self.s3.copy(self.source, self.name, part)
        checksums = self.checksums
        with_md5 = there is not None or not is_summed or not checksums.knows_crc
        read = partial(read_body, self.source, part.start, part.size, buffer, with_md5=with_md5)
        body = await read_source(read, part.size, self.name)
        if there is not None and await checksums.are_there(there.etag, there.crc, body):
            return Receipt(etag=there.etag, crc=body.crc, is_proven=True)
        put = partial(self.s3.put_part, self.name, part, body.data)
        return await checksums.put_part(put, body, is_summed=is_summed)

    async def _complete(
        self, begun: Unfinished, sent: Mapping[int, Receipt], mark: str
    ) -> str | None:
        """Returns the ETag if it is that of these parts."""
        etag = composite([part.etag for _, part in sorted(sent.items())])
        try:
            found = await self.s3.complete_upload(
                self.name, begun.upload_id, sent, self.condition, is_summed=begun.is_summed
            )
        except StorageError as error:
            # If the answer to a completion was lost, the repeated request finds the object and no
            # upload.
            is_gone = answered(error)[0] == "NoSuchUpload"
            again = is_gone or isinstance(error, AlreadyStored)
            if again and await put_by_us(self.s3, self.name, mark, etag) is not None:
                return None
            if is_gone:
                cause = "its upload was aborted meanwhile"
                raise StorageUnavailable("put", self.name, cause) from error
            raise
        return etag if found == etag else None


async def confirm(s3: Client, name: str, size: int) -> PutResult:
    """Check that the object has this size. Raises StorageError."""
    found = await s3.head(name)
    if found is None:
        cause = "the store has confirmed it, but does not have it"
        raise NotStored("put", name, cause)
    if found.info.size != size:
        cause = f"{size} bytes were sent, but the store has {found.info.size}"
        raise StorageUnavailable("put", name, cause)
    return PutResult(size=size, etag=found.info.etag)


async def abort(s3: Client, begun: Unfinished) -> None:
    """Abort an upload, so that its parts cost nothing. If this fails, they stay, invisible."""
    import anyio

    with anyio.move_on_after(_ABORT_S, shield=True):
        try:
            await s3.abort(begun.name, begun.upload_id)
        except StorageError:
            # The caller reports the original failure. Rules of the bucket may expire the parts.
            return


def composite(etags: Sequence[str]) -> str | None:
    """The ETag of an object of these parts; None if their ETags are not MD5 sums."""
    try:
        sums = b"".join(bytes.fromhex(etag.strip('"')) for etag in etags)
    except ValueError:
        return None
    return f"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(etags)}"


async def put_by_us(
    s3: Client, name: str, mark: str, etag: str | None = None
) -> ObjectInfo | None:
    """The existing object if it was put with this mark, or has this ETag.

    Without the mark, a conditional put whose answer was lost would not be known: the client
    repeats a request when a connection breaks, and the second one finds the object of the first.
    Raises StorageError.
    """
    found = await s3.head(name)
    if found is None or not (found.mark == mark or (etag and found.info.etag == etag)):
        return None
    return found.info


_LEAST_BYTES = 2 << 20
_HUGE_BYTES = 4 << 20
_HUGE: int | None = getattr(mmap_module, "MADV_HUGEPAGE", None)


async def put_whole(
    s3: Client, name: str, body: Body, condition: Mapping[str, str], checksums: Checksums
) -> PutResult:
    """Put an object in one request. Raises StorageError."""
    size, mark = len(body.data), unique()
    headers = {**condition, MARK: mark} if condition else {}
    try:
        answer = await checksums.put(
            lambda sums: s3.put(name, body.data, {**headers, **sums}), body
        )
    except AlreadyStored:
        if not condition or (found := await put_by_us(s3, name, mark)) is None:
            raise
        return PutResult(size=size, etag=found.etag)
    if not answer.is_proven:
        await confirm(s3, name, size)
    return PutResult(size=size, etag=answer.etag or None)


class Buffers:
    """Memory for bodies, `total_bytes` at most, reused as long as requests are in progress.

    New pages for 8 MiB take as much CPU as their SHA-256, a third of the time to send them; huge
    ones a third of that.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total = self._left = total_bytes
        self._released = asyncio.Event()
        self._free: list[bytearray | mmap] = []
        self._lent = 0

    @asynccontextmanager
    async def lent(self, size: int) -> AsyncIterator[memoryview]:
        """A buffer of `size` bytes, for the duration of the block; waits until so many are left.
        Small ones count as 2 MiB, which limits the number of requests, too."""
        share = min(max(size, _LEAST_BYTES), self._total)
        while self._left < share:
            self._released.clear()
            await self._released.wait()
        self._left -= share
        self._lent += 1
        usable = self._free.pop() if self._free else _memory(size)
        buffer = usable if len(usable) >= size else _memory(size)
        try:
            yield memoryview(buffer)[:size]
        finally:
            self._left += share
            self._lent -= 1
            self._free.append(buffer)
            if not self._lent:
                self._free.clear()
            self._released.set()


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
