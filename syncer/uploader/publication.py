"""Makes records visible in storage, as a consistent set that one object names: the head.

A publication uploads small files first, then new stretches of the journal
(`holdfast.syncer.journal.stretches`), then the head. A restore from a journal without a head uses
the journal, because the files that it needs were uploaded before it. After the head, checkpoints
that no record up to it names can be removed, and so can stretches that were merged into longer
ones.

The cost of a publication does not depend on the age of the experiment: it uploads new bytes,
checks that they have arrived, and writes a head with a few stretches of the newest segment and one
object for each of the others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from holdfast.syncer.artifacts.mirror import Mirror
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.errors import AlreadyStored, NotStored, StorageError, StorageRefused
from holdfast.syncer.files import threads
from holdfast.syncer.journal.journal import Position, segment_name
from holdfast.syncer.journal.stretches import (
    HEAD_BYTES,
    LARGEST_PUT,
    Stretch,
    encode_head,
    is_here,
    next_start,
    parse_head,
    parse_stretch_name,
    read_stretch,
    segment_size,
    stretches_of,
)
from holdfast.syncer.stores.owned_store import ClaimLost, OwnedStore, unconfirmed
from holdfast.syncer.stores.retry import StorageRetry


class Publication:
    """The published part of an experiment; `extend` publishes more."""

    def __init__(
        self, settings: UploaderSettings, storage: OwnedStore, retry: StorageRetry, mirror: Mirror
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._retry = retry
        self._mirror = mirror
        self._journal = settings.root / settings.journal
        self._published: dict[int, list[Stretch]] = {}
        # All segments before this one are completely in storage.
        self._whole_before = 0
        self._superseded: set[str] = set()
        # Segments whose published bytes differ from those on this machine's disk.
        self._apart: set[int] = set()
        # For each segment, the start of a put that is not confirmed yet.
        self._begun: dict[int, int] = {}

    async def read_published(self) -> None:
        """Read what an earlier incarnation has published, so that it is not uploaded again.

        Raises ClaimLost if another machine has published more than this machine has: it may have
        removed checkpoints that the records here name.
        """
        await self._retry.until_done("read the head", self._read_head)

    async def _read_head(self) -> None:
        try:
            head = parse_head(await self._storage.read_small(self._settings.head, HEAD_BYTES))
        except (NotStored, ValueError):
            return
        published = stretches_of(head)
        if not await threads.call(partial(self._are_here, published)):
            cause = "another machine has continued the experiment meanwhile"
            raise ClaimLost("continue in", self._storage.where, cause, "Restore it again")
        if head["experiment_id"] == self._settings.experiment_id:
            await self._take_over(published)

    def _are_here(self, stretches: Iterable[Stretch]) -> bool:
        return all(is_here(self._journal, stretch) for stretch in stretches)

    async def _take_over(self, stretches: Iterable[Stretch]) -> None:
        """Compare the head with a listing, once per incarnation."""
        listed = await self._storage.sizes(self._settings.journal)
        self._published, named = {}, set()
        for stretch in stretches:
            before = self._published.setdefault(stretch.segment, [])
            end = before[-1].end if before else 0
            if stretch.start == end and listed.get(self._key(stretch.name)) == stretch.size:
                before.append(stretch)
                named.add(stretch.name)
        begins = min(self._published, default=0)
        names = [key.rpartition("/")[2] for key in listed]
        self._superseded = {n for n in names if n not in named and _is_part(n, begins)}

    def _key(self, name: str) -> str:
        return f"{self._settings.journal}/{name}"

    async def extend(self, end: Position, begins: int) -> None:
        """Make the journal from segment `begins` up to `end` visible, and small files.

        Raises StorageError.
        """
        await self._mirror.send_records()
        for number in range(max(begins, self._whole_before), end.segment + 1):
            await self._extend_segment(number, None if number < end.segment else end.offset)
            if number < end.segment:
                self._whole_before = number + 1
        await self._retry.until_done("publish the head", lambda: self._put_head(end, begins))

    async def _extend_segment(self, number: int, upto: int | None) -> None:
        """Upload the segment up to an offset; None if it is complete: all of it."""
        is_complete, size = upto is None, upto
        if size is None:
            size = await threads.call(partial(segment_size, self._journal, number))
        self._published.setdefault(number, [])
        while (start := self._next_start(number, size, is_complete=is_complete)) is not None:
            end = min(size, start + LARGEST_PUT)
            read = partial(read_stretch, self._journal, number, start, end - start)
            data = await threads.call(read)
            joined = [known for known in self._published[number] if known.start >= start]
            if not all(known.is_of(data[known.start - start :]) for known in joined):
                # The disk here now has other bytes: leave those in storage unchanged.
                self._apart.add(number)
            elif len(data) == end - start:
                await self._put_stretch(number, start, data, joined)
            else:
                raise _shorter(self._key(segment_name(number)), end)

    def _next_start(self, number: int, size: int, *, is_complete: bool) -> int | None:
        published = self._published[number]
        if number not in self._apart:
            start = next_start(published, size, is_complete=is_complete)
            # A put that was not confirmed is repeated, perhaps as part of a longer one.
            return start if start is None else min(start, self._begun.get(number, start))
        return published[-1].end if published[-1].end < size else None

    async def _put_stretch(
        self, number: int, start: int, data: bytes, joined: Sequence[Stretch]
    ) -> None:
        """Put the bytes as one object, which replaces the stretches in `joined`."""
        made = Stretch(segment=number, start=start, size=len(data), crc32=zlib.crc32(data))
        key = self._key(made.name)
        put = partial(self._put, key, data, is_new=not joined)
        self._begun[number] = start
        await self._retry.until_done(f"upload {key}", put)
        del self._begun[number]
        self._superseded |= {known.name for known in joined}
        kept = [known for known in self._published[number] if known.end <= start]
        self._published[number] = [*kept, made]

    async def _put(self, key: str, data: bytes, *, is_new: bool) -> None:
        """Put an object and check that it has arrived: some servers confirm and keep nothing.

        Never replaces an object of a newer incarnation, whose head may name it.
        """
        try:
            if is_new:
                await self._storage.put(key, data, create_only=True)
        except AlreadyStored:
            is_new = False
        if not is_new:
            await self._storage.check(at_once=True)
            await self._storage.put(key, data)
        found = await self._storage.head(key)
        if found is None or found.size != len(data):
            raise unconfirmed(key)

    async def _put_head(self, end: Position, begins: int) -> None:
        await self._storage.check(at_once=True)
        head = encode_head(
            experiment_id=self._settings.experiment_id,
            epoch=self._storage.claimed.key if self._storage.claimed else "",
            stretches=self._named(end, begins),
        )
        await self._storage.put_and_verify(self._settings.head, head)

    def _named(self, end: Position, begins: int) -> tuple[Stretch, ...]:
        numbers = range(begins, end.segment + 1)
        return tuple(stretch for number in numbers for stretch in self._published[number])

    async def remove_superseded(self) -> None:
        """Remove stretches that were merged into longer ones, after a head that does not name
        them. Failed removals are retried after the next head."""
        named = {one.name for several in self._published.values() for one in several}
        gone = sorted(self._superseded - named)
        self._superseded = set(gone)
        if gone:
            with suppress(StorageError):
                await self._storage.delete([self._key(name) for name in gone])
                self._superseded.clear()


def _shorter(key: str, end: int) -> StorageError:
    return StorageRefused(
        "publish", key, f"it no longer has {end} bytes on this machine", "Restore the file"
    )


def _is_part(name: str, begins: int) -> bool:
    """True if it is a stretch, other than the first, of one of this experiment's segments. A
    directory may have several experiments, and earlier ones are not changed."""
    parsed = parse_stretch_name(name)
    if parsed is None:
        return False
    segment, start = parsed
    return start > 0 and segment >= begins
