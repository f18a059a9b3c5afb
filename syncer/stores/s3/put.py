"""Puts objects to S3: in one request, in parts, or as copies of other objects.

A put counts if its answer proves that the body has arrived (`checksums.py`), or otherwise if the
object exists with the right size.
"""

from __future__ import annotations

import hashlib
import mmap as mmap_module
from collections.abc import Awaitable, Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import partial
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.stores.s3.body import Body
from holdfast.syncer.stores.s3.checksums import Checksums
from holdfast.syncer.stores.s3.errors import code_and_status
from holdfast.syncer.stores.s3.multipart import (
    MULTIPART_FROM_BYTES,
    PartRequest,
    StoredPart,
    UploadPart,
    part_bytes,
    put_by_us,
    put_mark,
)
from holdfast.syncer.stores.store import PutResult, allowance_s

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
    """Put an object in one request. Raises what botocore raises, and StorageUnavailable."""
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
        found = await s3.head_object(**bucket_key)
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
    """Whether an object with this ETag, put by holdfast, has the file's bytes. Raises OSError."""
    digest, _, parts = etag.partition("-")
    each = part_bytes(size) if parts else max(size, 1)
    if parts and (size < MULTIPART_FROM_BYTES or parts != str(-(-size // each))):
        return False
    with path.open("rb", buffering=0) as file:
        sums = [_md5(file, each) for _ in range(max(1, -(-size // each)))]
    found = hashlib.md5(b"".join(sums), usedforsecurity=False).hexdigest() if parts else ""
    return digest == (found or sums[0].hex())


def _md5(file: Any, size: int) -> bytes:
    digest = hashlib.md5(usedforsecurity=False)
    left, buffer = size, memoryview(bytearray(min(size, 1 << 20)))
    while left and (count := file.readinto(buffer[:left])):
        digest.update(buffer[:count])
        left -= count
    return digest.digest()
