"""Uploading a large object in parts: several at once, in bounded memory, aborted on failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from holdfast.syncer.durable import unique
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
_MARK = "holdfast-put"


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
        mark = put_mark({"IfNoneMatch": "*"})
        started = await self.call(
            lambda s3: s3.create_multipart_upload(**self.place, **mark), _REQUEST_S
        )
        upload = {**self.place, "UploadId": started["UploadId"]}
        try:
            etags = await self._send_parts(upload)
            await self._complete(upload, etags, mark)
        except BaseException:
            await self._abort(upload)
            raise
        return await self._confirmed()

    async def _send_parts(self, upload: Mapping[str, str]) -> dict[int, str]:
        sent: dict[int, str] = {}

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
            sent[number] = answer["ETag"]

        parts = -(-self.size // self.part_bytes)
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
                # A completion that was sent again after its answer was lost finds the object
                # there, and no upload any more.
                code, status = code_and_status(error)
                again = status == 412 or code == "NoSuchUpload"
                if not (again and await is_ours(s3, self.place, mark)):
                    raise

        await self.call(complete, _REQUEST_S)

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


def put_mark(condition: Mapping[str, str]) -> dict[str, Any]:
    """Metadata by which a conditional put is recognised, also when its answer was lost.

    botocore and aiohttp send a request again when a connection breaks off (aiohttp without
    telling), and the second finds the object of the first.
    """
    return {"Metadata": {_MARK: unique()}} if condition else {}


async def is_ours(s3: Any, place: Mapping[str, str], mark: Mapping[str, Any]) -> bool:
    """Whether the object that is there was put with this mark. Raises what botocore raises."""
    if not mark:
        return False
    found = await s3.head_object(**place)
    return bool(found.get("Metadata", {}).get(_MARK) == mark["Metadata"][_MARK])
