"""Downloads an object in ranges: several at once, straight into its file, and hashed in order.

The first answer says how large the object is, and which (its ETag). Each further range must be of
the same object. A range that breaks off is asked for again from where it stopped.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import (
    AlreadyStored,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    from_os_error,
    os_errors,
)
from holdfast.syncer.files import threads
from holdfast.syncer.stores.retry import moved_to
from holdfast.syncer.stores.s3.answers import answered
from holdfast.syncer.stores.s3.client import Client
from holdfast.syncer.stores.store import (
    DOWNLOAD_ATTEMPTS,
    allowance_s,
    for_each,
    new_digest,
    read_into,
)

# As large as the parts of an upload, which some servers store apart. Eight at once: a server
# limits each connection (S3 to about 90 MB/s), and the hashing follows the first range that is
# not complete, so more at once would leave more to hash at the end.
RANGE_BYTES = 8 << 20
_AT_ONCE = 8
# An answer may claim any size.
_MOST_RANGES = 10_000
# The hashing advances by at least a step, and at most a stretch, which is in a thread.
_STEP_BYTES = 4 << 20
_STRETCH_BYTES = 64 << 20
_INLINE_BYTES = 256 << 10
_ANSWER_S = 60.0
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")
_LARGEST = 1 << 63


class ObjectReplaced(StorageUnavailable):
    """Another object is there now, or may be: the download begins again."""


@dataclass(slots=True, kw_only=True)
class Arrival:
    """An object that arrives in the file `descriptor`, and what its answers have said about it.

    `size` is that of the listing, None if it is not known. `hasher` is None for no checksum.
    """

    where: str
    descriptor: int
    size: int | None
    hasher: Any = None
    etag: str | None = None
    # In the ranges that are complete.
    complete_bytes: int = 0
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
        return ObjectReplaced("get", self.where, cause)


@dataclass(slots=True, kw_only=True)
class Part:
    """The bytes from `start` to `end` of an object, of which `got` have arrived. `end` is None for
    the whole object, whose size is not known before the answer."""

    arrival: Arrival
    start: int
    end: int | None
    got: int = 0
    told: int = 0
    # Of the current request.
    limit: asyncio.Timeout | None = None

    @property
    def is_complete(self) -> bool:
        return self.end is not None and self.start + self.got == self.end

    def asked(self) -> dict[str, str]:
        """The headers of a request for the bytes that are missing."""
        found = {}
        if self.start + self.got or (self.end is not None and self.end != self.arrival.size):
            found["range"] = f"bytes={self.start + self.got}-{(self.end or 0) - 1}"
        if self.arrival.etag:
            found["if-match"] = self.arrival.etag
        return found

    def begin(self, headers: Mapping[str, str]) -> None:
        """Accept the answer with these headers (names in lower case), whose bytes follow.

        Some servers answer 200 to a range and send only that (rclone 1.75), others ignore it.
        Raises ObjectReplaced, and StorageUnavailable if it is another range.
        """
        first, last, size = _extent(headers, self.arrival.where)
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
        if self.limit is not None and not self.limit.expired():  # one that came with the answer
            allowed_s = allowance_s(self.end - at)
            self.limit.reschedule(asyncio.get_running_loop().time() + allowed_s)

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
            self.arrival.failure = from_os_error(error, "get", self.arrival.where)
            raise self.arrival.failure from error
        self.got = at - self.start
        if self.got - self.told >= _STEP_BYTES or at == self.end:
            self.told = self.got
            self.arrival.moved.set()

    def broken_off(self) -> StorageUnavailable:
        size = "?" if self.end is None else self.end - self.start
        return StorageUnavailable("get", self.arrival.where, f"{self.got} of {size} bytes arrived")

    def _odd(self, cause: str) -> StorageUnavailable:
        return StorageUnavailable(
            "get", self.arrival.where, f"the storage sent other bytes: {cause}"
        )


def _extent(headers: Mapping[str, str], where: str) -> tuple[int, int, int]:
    """The first and the last byte of an answer, and the size of the object."""
    if "content-range" in headers:
        found = _RANGE.fullmatch(headers["content-range"])
        numbers = tuple(map(int, found.groups())) if found else (0, 0, 0)
        first, last, size = numbers
        if not first <= last < size < _LARGEST:
            cause = f"the storage sent an odd range ({headers['content-range']!r:.100})"
            raise StorageUnavailable("get", where, cause)
        return first, last, size
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        raise StorageUnavailable("get", where, "the storage did not say how many bytes it has")
    return 0, int(length) - 1, int(length)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangedDownload:
    """Downloads the object `name` into an open, empty file. `slots` limits the requests at one
    time.

    `where` is the object for messages.
    """

    s3: Client
    slots: asyncio.Semaphore
    name: str
    where: str
    descriptor: int

    async def perform(
        self, size: int | None = None, algorithm: str | None = None
    ) -> tuple[int, str]:
        """Returns the size, and the checksum of the file ("" without algorithm). `size` is that
        of a listing, None if it is not known.

        Begins again if the object is replaced meanwhile. Raises StorageError.
        """
        for _ in range(DOWNLOAD_ATTEMPTS - 1):
            with suppress(ObjectReplaced):
                return await self._attempt(size, algorithm)
            # What another object has left must not be a part of this one.
            with os_errors("get", self.where):
                os.ftruncate(self.descriptor, 0)
            size = None
        return await self._attempt(size, algorithm)

    async def _attempt(self, size: int | None, algorithm: str | None) -> tuple[int, str]:
        arrival = Arrival(
            where=self.where,
            descriptor=self.descriptor,
            size=size,
            hasher=None if algorithm is None else new_digest(algorithm),
        )
        if size is None or size > RANGE_BYTES:
            await self._fetch_ranges(arrival)
        else:
            await self._fetch(Part(arrival=arrival, start=0, end=size))
            await _hash(arrival, 0, size)
        hasher = arrival.hasher
        return arrival.size or 0, "" if hasher is None else str(hasher.hexdigest())

    async def _fetch_ranges(self, arrival: Arrival) -> None:
        first = Part(arrival=arrival, start=0, end=RANGE_BYTES)
        parts = [first]

        async def fetch_others() -> None:
            await arrival.begun.wait()
            size = arrival.size or 0
            each = max(RANGE_BYTES, -(-size // _MOST_RANGES))
            parts.extend(
                Part(arrival=arrival, start=at, end=min(at + each, size))
                for at in range(first.end or 0, size, each)
            )
            await for_each(self._fetch, parts[1:], at_once=_AT_ONCE - 1)

        jobs: list[Callable[[], Awaitable[None]]] = [
            partial(self._fetch, first),
            fetch_others,
            partial(_hash_along, arrival, parts),
        ]
        await for_each(lambda job: job(), jobs, at_once=len(jobs))

    async def _fetch(self, part: Part) -> None:
        """Fetch a range; again from where it broke off, if that is the same object."""
        arrival = part.arrival
        for left in reversed(range(DOWNLOAD_ATTEMPTS)):
            try:
                await self._ask(part)
                if part.is_complete:
                    arrival.complete_bytes += part.got
                    moved_to(f"get {arrival.where}", arrival.complete_bytes)
                    return
                raise part.broken_off()
            except StorageUnavailable as error:
                if not left or arrival.failure is not None or isinstance(error, ObjectReplaced):
                    raise
                if part.got and arrival.etag is None:
                    raise arrival.replaced(error.cause) from error

    async def _ask(self, part: Part) -> None:
        """Ask for what is missing of a part, in the time that its size allows; the time in which
        other downloads have all the slots does not count."""
        arrival = part.arrival
        try:
            async with self.slots, asyncio.timeout(_ANSWER_S) as part.limit:
                await self.s3.get_range(self.name, part)
        except TimeoutError as error:
            cause = "it did not arrive within the deadline"
            raise StorageUnavailable("get", self.where, cause) from error
        except AlreadyStored as error:  # 412, which for a put means just that
            raise arrival.replaced("it was replaced meanwhile") from error
        except StorageRefused as error:
            if answered(error)[1] != 416:
                raise
            if arrival.begun.is_set() or part.end is None:
                raise arrival.replaced("it is shorter now") from error
            part.end = None  # no range of an empty object exists
            await self._ask(part)


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
            await _hash(arrival, at, upto)
            at = upto
        elif at != arrival.size:
            await arrival.moved.wait()


async def _hash(arrival: Arrival, start: int, end: int) -> None:
    if arrival.hasher is None:
        return
    with os_errors("read", arrival.where):
        if end - start <= _INLINE_BYTES:
            read_into(arrival.hasher, arrival.descriptor, start, end)
            return
        # Its own, because a cancellation does not wait for the thread.
        own = os.dup(arrival.descriptor)
        await threads.call(partial(_hash_and_close, arrival.hasher, own, start, end))


def _hash_and_close(hasher: Any, descriptor: int, start: int, end: int) -> None:
    try:
        read_into(hasher, descriptor, start, end)
    finally:
        os.close(descriptor)
