"""Uploading a large object in parts: several at once, in bounded memory, aborted on failure."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from holdfast.syncer.errors import StorageError, StorageUnavailable
from holdfast.syncer.s3_client import Body, Budget
from holdfast.syncer.s3_errors import code_and_status
from holdfast.syncer.store import Stored, allowance_s, for_each

R = TypeVar("R")

MULTIPART_FROM_BYTES = 16 << 20
PART_BYTES = 8 << 20
_MAX_PARTS = 10_000
_PARTS_AT_ONCE = 4
_REQUEST_S = 60.0
_ABORT_S = 10.0


class Call(Protocol):
    """Perform a request with the client, within so many seconds, errors translated."""

    def __call__(
        self, request: Callable[[Any], Awaitable[R]], deadline_s: float
    ) -> Awaitable[R]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipart:
    """One upload of `size` bytes, which `read(start, size)` gives, to `place`."""

    call: Call
    read: Callable[[int, int], Awaitable[Body]]
    budget: Budget
    place: Mapping[str, str]
    condition: Mapping[str, str]
    size: int

    @property
    def part_bytes(self) -> int:
        """8 MiB, or more whole MiB where that would make over 10,000 parts."""
        mebibyte = 1 << 20
        least = -(-self.size // _MAX_PARTS)
        return max(PART_BYTES, -(-least // mebibyte) * mebibyte)

    async def upload(self) -> Stored:
        """Send all parts and complete; on any failure, abort. Raises StorageError."""
        started = await self.call(lambda s3: s3.create_multipart_upload(**self.place), _REQUEST_S)
        upload = {**self.place, "UploadId": started["UploadId"]}
        try:
            digests = await self._send_parts(upload)
            await self._complete(upload, digests)
        except BaseException:
            await self._abort(upload)
            raise
        return await self._confirmed()

    async def _send_parts(self, upload: Mapping[str, str]) -> dict[int, tuple[str, bytes]]:
        sent: dict[int, tuple[str, bytes]] = {}

        async def send(number: int) -> None:
            start = (number - 1) * self.part_bytes
            size = min(self.part_bytes, self.size - start)
            async with self.budget.take(size):
                body = await self.read(start, size)
                answer = await self.call(
                    lambda s3: s3.upload_part(
                        **upload,
                        PartNumber=number,
                        Body=body.data,
                        ContentMD5=body.content_md5,
                    ),
                    allowance_s(size),
                )
            sent[number] = answer["ETag"], body.digest

        parts = -(-self.size // self.part_bytes)
        await for_each(send, range(1, parts + 1), at_once=_PARTS_AT_ONCE)
        return sent

    async def _complete(
        self, upload: Mapping[str, str], sent: Mapping[int, tuple[str, bytes]]
    ) -> None:
        parts = [{"PartNumber": number, "ETag": sent[number][0]} for number in sorted(sent)]
        try:
            await self.call(
                lambda s3: s3.complete_multipart_upload(
                    **upload, MultipartUpload={"Parts": parts}, **self.condition
                ),
                _REQUEST_S,
            )
        except StorageError as error:
            # A retried completion whose first answer was lost finds no upload any more.
            cause = error.__cause__
            gone = isinstance(cause, Exception) and code_and_status(cause)[0] == "NoSuchUpload"
            if not (gone and await self._is_ours([sent[number][1] for number in sorted(sent)])):
                raise

    async def _is_ours(self, digests: list[bytes]) -> bool:
        found = await self.call(lambda s3: s3.head_object(**self.place), _REQUEST_S)
        digest = hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
        return bool(found["ETag"].strip('"') == f"{digest}-{len(digests)}")

    async def _confirmed(self) -> Stored:
        found = await self.call(lambda s3: s3.head_object(**self.place), _REQUEST_S)
        if found["ContentLength"] != self.size:
            cause = f"{self.size} bytes were sent and the store has {found['ContentLength']}"
            raise StorageUnavailable("put", self.place["Key"], cause)
        return Stored(size=self.size, etag=found["ETag"].strip('"'))

    async def _abort(self, upload: Mapping[str, str]) -> None:
        import anyio

        with anyio.move_on_after(_ABORT_S, shield=True):
            try:
                await self.call(lambda s3: s3.abort_multipart_upload(**upload), _ABORT_S)
            except StorageError:
                # The failure that led here is what the caller is told; parts that stay behind
                # are invisible, and buckets have rules that expire them.
                return
