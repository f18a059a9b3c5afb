"""Downloads an object in ranges: several at once, straight into its file, and hashed in order.

The first answer says how large the object is, and which (its ETag). Each further range must be of
the same object. A range that breaks off is asked for again from where it stopped.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Protocol, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import (
    AlreadyStored,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    from_os_error,
    os_errors,
)
from holdfast.syncer.stores.hashed import new_digest, read_into
from holdfast.syncer.stores.s3.errors import cause_of, code_and_status
from holdfast.syncer.stores.store import DOWNLOAD_ATTEMPTS, allowance_s, for_each

R = TypeVar("R")

# As large as the parts of an upload, which some servers store apart. Eight at once: a server
# limits each connection (S3 to about 90 MB/s), and the hashing follows the first range that is
# not complete, so more at once would leave more to hash at the end.
RANGE_BYTES = 8 << 20
_AT_ONCE = 8
# The hashing advances by at least a step, and at most a stretch, which is in a thread.
_STEP_BYTES = 4 << 20
_STRETCH_BYTES = 64 << 20
_INLINE_BYTES = 256 << 10
_ANSWER_S = 60.0
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")
_LARGEST = 1 << 63


class ObjectReplaced(StorageUnavailable):
    """Another object is there now, or may be: the download begins again."""


class RangeRequest(Protocol):
    """Performs a request, and translates its errors."""

    def __call__(self, request: Callable[[Any], Awaitable[R]]) -> Awaitable[R]: ...


@dataclass(slots=True, kw_only=True)
class Arrival:
    """An object that arrives in the file `descriptor`, and what its answers have said about it.

    `size` is that of the listing, None if it is not known. `hasher` is None for no checksum.
    """

    key: str
    descriptor: int
    size: int | None
    hasher: Any = None
    etag: str | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    # Of the disk: no other request helps.
    failure: StorageError | None = None

    def accept(self, etag: str | None, size: int) -> None:
        """Note the first answer's facts; others must have the same. Raises ObjectReplaced."""
        if self.begun.is_set() and etag != self.etag:
            raise self.replaced("it was replaced meanwhile")
        if self.size not in {None, size}:
            raise self.replaced(f"it has {size} bytes now, and had {self.size}")
        self.etag, self.size = etag, size
        self.begun.set()

    def replaced(self, cause: str) -> ObjectReplaced:
        return ObjectReplaced("get", self.key, cause)


@dataclass(slots=True, kw_only=True)
class Part:
    """The bytes from `start` to `end` of an object, of which `got` have arrived. `end` is None for
    the whole object, whose size is not known before the answer."""

    arrival: Arrival
    start: int
    end: int | None
    got: int = 0
    told: int = 0

    @property
    def is_complete(self) -> bool:
        return self.end is not None and self.start + self.got == self.end

    def asked(self) -> dict[str, str]:
        """The parameters of a request for the bytes that are missing."""
        found = {}
        if self.start + self.got or (self.end is not None and self.end != self.arrival.size):
            found["Range"] = f"bytes={self.start + self.got}-{(self.end or 0) - 1}"
        if self.arrival.etag:
            found["IfMatch"] = self.arrival.etag
        return found

    def begin(self, headers: Mapping[str, str]) -> None:
        """Accept the answer with these headers (names in lower case), whose bytes follow.

        Some servers answer 200 to a range and send only that (rclone 1.75), others ignore it.
        Raises ObjectReplaced, and StorageUnavailable if it is another range.
        """
        first, last, size = _extent(headers, self.arrival.key)
        self.arrival.accept(headers.get("etag"), size)
        at = self.start + self.got
        if first != at:
            if at and not first:
                raise self.arrival.replaced("the storage sent it from the beginning")
            raise self._odd(f"bytes from {first} on came, not from {at} on")
        if "content-range" not in headers or self.end is None:
            self.end = size
        elif last + 1 != min(self.end, size):
            raise self._odd(f"bytes up to {last} came, not up to {min(self.end, size) - 1}")
        else:
            self.end = last + 1

    def write(self, data: bytes | memoryview) -> None:
        """Write the next bytes to the file. Raises StorageError."""
        view = memoryview(data)
        at = self.start + self.got
        if self.end is None or at + len(view) > self.end:
            raise self._odd("more bytes came than it has")
        try:
            while view:
                count = os.pwrite(self.arrival.descriptor, view, at)
                view, at = view[count:], at + count
        except OSError as error:
            self.arrival.failure = from_os_error(error, "download", self.arrival.key)
            raise self.arrival.failure from error
        self.got = at - self.start
        if self.got - self.told >= _STEP_BYTES or at == self.end:
            self.told = self.got
            self.arrival.moved.set()

    def broken_off(self) -> StorageUnavailable:
        size = "?" if self.end is None else self.end - self.start
        return StorageUnavailable("get", self.arrival.key, f"{self.got} of {size} bytes arrived")

    def _odd(self, cause: str) -> StorageUnavailable:
        return StorageUnavailable(
            "get", self.arrival.key, f"the storage sent other bytes: {cause}"
        )


def _extent(headers: Mapping[str, str], key: str) -> tuple[int, int, int]:
    """The first and the last byte of an answer, and the size of the object."""
    if "content-range" in headers:
        found = _RANGE.fullmatch(headers["content-range"])
        numbers = tuple(map(int, found.groups())) if found else (0, 0, 0)
        first, last, size = numbers
        if not first <= last < size < _LARGEST:
            cause = f"the storage sent an odd range ({headers['content-range']!r:.100})"
            raise StorageUnavailable("get", key, cause)
        return first, last, size
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        raise StorageUnavailable("get", key, "the storage did not say how many bytes it has")
    return 0, int(length) - 1, int(length)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangedDownload:
    """Downloads `bucket_key` into an open file. `slots` limits the requests at the same time.

    `size` is that of a listing; None if it is not known.
    """

    call: RangeRequest
    slots: asyncio.Semaphore
    bucket_key: Mapping[str, str]
    descriptor: int
    size: int | None = None

    async def perform(self, algorithm: str | None = None) -> tuple[int, str]:
        """Returns the size, and the checksum of the file ("" without algorithm).

        Begins again if the object is replaced meanwhile. Raises StorageError.
        """
        key = self.bucket_key["Key"]
        size = self.size
        for left in reversed(range(DOWNLOAD_ATTEMPTS)):
            arrival = Arrival(key=key, descriptor=self.descriptor, size=size)
            if algorithm is not None:
                arrival.hasher = new_digest(algorithm)
            try:
                return await self._attempt(arrival)
            except ObjectReplaced:
                if not left:
                    raise
            # What another object has left must not be a part of this one.
            with os_errors("download", key):
                os.ftruncate(self.descriptor, 0)
            size = None
        raise AssertionError("unreachable")

    async def _attempt(self, arrival: Arrival) -> tuple[int, str]:
        loop = asyncio.get_running_loop()
        size = arrival.size
        try:
            async with asyncio.timeout(_ANSWER_S if size is None else allowance_s(size)) as limit:
                whole = size is not None and size <= RANGE_BYTES
                first = Part(arrival=arrival, start=0, end=size if whole else RANGE_BYTES)
                if whole:
                    await self._fetch(first)
                    return first.got, await _hash_at_end(arrival)
                return await self._in_ranges(
                    first, lambda: limit.reschedule(loop.time() + allowance_s(arrival.size or 0))
                )
        except TimeoutError as error:
            cause = "it did not arrive within the deadline"
            raise StorageUnavailable("get", arrival.key, cause) from error

    async def _in_ranges(self, first: Part, extend: Callable[[], None]) -> tuple[int, str]:
        arrival = first.arrival
        parts = [first]

        async def others() -> None:
            """The other ranges, once the first answer has said how many there are."""
            await arrival.begun.wait()
            extend()
            end, size = first.end or 0, arrival.size or 0
            parts.extend(
                Part(arrival=arrival, start=at, end=min(at + RANGE_BYTES, size))
                for at in range(end, size, RANGE_BYTES)
            )
            await for_each(self._fetch, parts[1:], at_once=_AT_ONCE - 1)

        jobs: list[Callable[[], Awaitable[object]]] = [
            lambda: self._fetch(first),
            others,
            lambda: _hash_along(arrival, parts),
        ]
        await for_each(lambda job: job(), jobs, at_once=len(jobs))
        digest = arrival.hasher
        return arrival.size or 0, "" if digest is None else str(digest.hexdigest())

    async def _fetch(self, part: Part) -> None:
        """Fetch a range; again from where it broke off, if that is the same object."""
        arrival = part.arrival
        for left in reversed(range(DOWNLOAD_ATTEMPTS)):
            try:
                await self._ask(part)
                if part.is_complete:
                    return
                raise part.broken_off()
            except StorageUnavailable as error:
                if not left or arrival.failure is not None or isinstance(error, ObjectReplaced):
                    raise
                if part.got and arrival.etag is None:
                    raise arrival.replaced(error.cause) from error

    async def _ask(self, part: Part) -> None:
        arrival = part.arrival
        try:
            async with self.slots:
                await self.call(lambda s3: s3.get_range(self.bucket_key, part))
        except AlreadyStored as error:  # 412, which for a put means just that
            raise arrival.replaced("it was replaced meanwhile") from error
        except StorageRefused as error:
            if code_and_status(cause_of(error))[1] != 416:
                raise
            if arrival.begun.is_set() or part.end is None:
                raise arrival.replaced("it is shorter now") from error
            part.end = None  # no range of an empty object exists
            await self._ask(part)


async def _hash_at_end(arrival: Arrival) -> str:
    """The checksum of a small file."""
    if arrival.hasher is None:
        return ""
    await _update(arrival, 0, arrival.size or 0)
    return str(arrival.hasher.hexdigest())


async def _hash_along(arrival: Arrival, parts: list[Part]) -> None:
    """Hash the file as far as it has arrived without a gap, until its end."""
    if arrival.hasher is None:
        return
    await arrival.begun.wait()
    at = 0
    position = 0
    while arrival.size is None or at < arrival.size:
        arrival.moved.clear()
        while position + 1 < len(parts) and parts[position].is_complete:
            position += 1
        upto = min(parts[position].start + parts[position].got, at + _STRETCH_BYTES)
        if upto - at >= _STEP_BYTES or (upto == arrival.size and upto > at):
            await _update(arrival, at, upto)
            at = upto
        elif at != arrival.size:
            await arrival.moved.wait()


async def _update(arrival: Arrival, start: int, end: int) -> None:
    with os_errors("read", arrival.key):
        if end - start <= _INLINE_BYTES:
            read_into(arrival.hasher, arrival.descriptor, start, end)
            return
        import anyio.to_thread

        # A cancellation waits for the thread: it reads from a file that is closed afterwards.
        await anyio.to_thread.run_sync(read_into, arrival.hasher, arrival.descriptor, start, end)
