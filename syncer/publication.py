"""What is visible in storage: a consistent set, made so by one object that is written last.

Object stores cannot append. Small files go first, then sealed journal segments, then the head,
which names the segments. Where there is a journal and no head yet, a restore takes the journal:
what it needs beside is there by then. What no record up to the head names any more may go after
it.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from typing import Any

from holdfast.syncer.errors import AlreadyStored, NotStored
from holdfast.syncer.head import parse_head
from holdfast.syncer.journal import segment_name
from holdfast.syncer.mirror import Mirror
from holdfast.syncer.orders import Orders
from holdfast.syncer.owned_store import OwnedStore, Usurped, unconfirmed
from holdfast.syncer.patience import Patience
from holdfast.syncer.regular import read_regular


class Publication:
    """What has reached the storage by now, and how more does."""

    def __init__(
        self, orders: Orders, storage: OwnedStore, patience: Patience, mirror: Mirror
    ) -> None:
        self._orders = orders
        self._storage = storage
        self._patience = patience
        self._mirror = mirror
        self._segments: dict[int, dict[str, Any]] = {}
        self._published: dict[str, tuple[int, int]] = {}

    async def recall(self) -> None:
        """What an earlier incarnation has published need not travel again.

        Raises Usurped where another machine has published more than was brought here before the
        storage became ours: what it has removed since may be what our records name.
        """
        await self._patience.until_done("read the head", self._read_head)

    async def _read_head(self) -> None:
        try:
            head = parse_head(await self._storage.read(self._orders.head))
        except (NotStored, ValueError):
            return
        published = {s["name"]: (s["size"], s["crc32"]) for s in head["segments"]}
        if not await asyncio.to_thread(self._are_here, published):
            cause = "another machine has taken the experiment further meanwhile"
            raise Usurped("go on in", self._storage.where, cause, "Restore it once more")
        if head.get("experiment_id") == self._orders.experiment_id:
            self._published = published

    def _are_here(self, segments: Mapping[str, tuple[int, int]]) -> bool:
        for name, (size, crc32) in segments.items():
            try:
                data = read_regular(self._orders.root / self._orders.journal / name)[:size]
            except FileNotFoundError:
                return False
            if (len(data), zlib.crc32(data)) != (size, crc32):
                return False
        return True

    async def extend(self, sealed: int, begins: int) -> None:
        """Make the journal's segments from `begins` up to `sealed`, and files, visible.

        Raises StorageError.
        """
        await self._mirror.send_records()
        for number in range(begins, sealed + 1):
            if number not in self._segments:
                await self._extend_by_segment(number)
        await self._patience.until_done(
            "confirm the journal", lambda: self._confirm_segments(begins, sealed)
        )
        await self._patience.until_done("publish the head", lambda: self._put_head(begins, sealed))

    async def _extend_by_segment(self, number: int) -> None:
        name = segment_name(number)
        key = f"{self._orders.journal}/{name}"
        data = await asyncio.to_thread((self._orders.root / key).read_bytes)
        size, crc32 = len(data), zlib.crc32(data)
        if self._published.get(name) != (size, crc32):
            await self._patience.until_done(f"upload {key}", lambda: self._put_segment(key, data))
        self._segments[number] = {"name": name, "size": size, "crc32": crc32}

    async def _put_segment(self, key: str, data: bytes) -> None:
        """Never over one that a newer incarnation has put there: it may be named by its head."""
        try:
            await self._storage.put(key, data, create_only=True)
        except AlreadyStored:
            await self._storage.check(at_once=True)
            await self._storage.put(key, data)

    async def _confirm_segments(self, begins: int, sealed: int) -> None:
        """A head shall name what is there: some servers say that all is well, and keep nothing."""
        listed = {e.key: e.size for e in await self._storage.list(self._orders.journal)}
        for number in range(begins, sealed + 1):
            key = f"{self._orders.journal}/{segment_name(number)}"
            if listed.get(key) != self._segments[number]["size"]:
                data = await asyncio.to_thread((self._orders.root / key).read_bytes)
                await self._storage.put(key, data)
                raise unconfirmed(key)

    async def _put_head(self, begins: int, sealed: int) -> None:
        await self._storage.check(at_once=True)
        head = {
            "format": 1,
            "experiment_id": self._orders.experiment_id,
            "epoch": self._storage.epoch,
            "segments": [self._segments[n] for n in range(begins, sealed + 1)],
        }
        await self._storage.put_for_sure(self._orders.head, json.dumps(head, indent=1).encode())
