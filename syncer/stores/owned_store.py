"""The storage of an experiment, which this incarnation may write to while it is the newest.

Each incarnation claims the storage by creating the next object in
`.epochs/`. If the store has conditional puts, only one of two simultaneous claims succeeds. An
incarnation that finds a newer claim than its own stops writing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import AlreadyStored, NotStored, StorageError, StorageUnavailable
from holdfast.syncer.files.durable import is_leftover, unique
from holdfast.syncer.files.tree import CLAIMS
from holdfast.syncer.stores.retry import Turns
from holdfast.syncer.stores.store import (
    ObjectInfo,
    PutResult,
    Store,
    read_object,
)

_NAME = re.compile(r"[0-9]{6,12}")


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim with this number; the first is 1. A head stores its `key` as `epoch`."""

    number: int

    @property
    def key(self) -> str:
        """The key of its object in storage: `.epochs/000001`."""
        return f"{CLAIMS}/{self.number:06d}"

    @classmethod
    def parse(cls, key: str) -> Claim | None:
        """The claim with this key; None if it is not the key of a claim."""
        folder, _, name = key.rpartition("/")
        return cls(int(name)) if folder == CLAIMS and _NAME.fullmatch(name) else None

    @classmethod
    def newest(cls, keys: Iterable[str]) -> Claim | None:
        """The claim with the greatest number among these keys; None if there is none."""
        found = (cls.parse(key) for key in keys)
        return max(filter(None, found), key=lambda claim: claim.number, default=None)


_LOOK_S = 1.0
# After this time the next look begins in the background; writes still rely on the last one.
_AHEAD_S = 0.7
# Tokens of nodes in the folder of the claims.
_TOKEN = "seen-"


class ClaimLost(StorageError):
    """Another incarnation of the experiment owns the storage now."""


def unconfirmed(key: str) -> StorageUnavailable:
    """The error for an object that is missing although the storage confirmed its put."""
    return StorageUnavailable(
        "put", key, "the storage has confirmed it, but does not have it", "It is uploaded again"
    )


class OwnedStore:
    """A store that checks its claim before each write: at most once a second, but always before a
    deletion.

    `claimed` is this incarnation's claim, perhaps made by an earlier uploader of it; None before
    it has one."""

    def __init__(
        self,
        store: Store,
        *,
        where: str,
        experiment_id: str,
        parallel: int,
        claimed: Claim | None = None,
    ) -> None:
        self._store = store
        self.where = where
        self._experiment_id = experiment_id
        self._slots = Turns(parallel)
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._ahead: asyncio.Task[None] | None = None
        self.claimed = claimed
        self.is_new = False
        self._was_empty = False
        # The last folder of each trial, by name. One entry per checkpoint would use much memory.
        self._last_folders: dict[str, str] = {}
        self._unfinished: set[str] = set()

    async def claim(self) -> None:
        """Claim the storage, unless this incarnation has already claimed it. Raises ClaimLost."""
        if self.claimed is not None:
            return
        keys = await self._claim_keys()
        newest = Claim.newest(keys)
        claim = Claim(1 if newest is None else newest.number + 1)
        try:
            await self._store.put(claim.key, self._experiment_id.encode(), create_only=True)
        except AlreadyStored as error:
            raise ClaimLost(
                "claim", self.where, "another restore of this experiment claimed it first"
            ) from error
        if claim.key not in await self._claim_keys():
            raise unconfirmed(claim.key)
        self.claimed = claim
        # Tokens that an earlier incarnation did not take.
        if tokens := [key for key in keys if key.startswith(f"{CLAIMS}/{_TOKEN}")]:
            await self._store.delete(tokens)
        self.is_new = claim.number == 1
        if self.is_new:
            found = await self._store.list(leftovers=True)
            self._was_empty = all(entry.key == claim.key for entry in found)

    async def _claim_keys(self) -> list[str]:
        return [entry.key for entry in await self._store.list(CLAIMS)]

    async def put_token(self) -> tuple[str, str]:
        """Put an object next to the claim, which shows another machine that this one writes to the
        same storage. Returns its key and its content. Raises ClaimLost, or StorageUnavailable if
        the claim is not there."""
        await self._look()
        key, content = f"{CLAIMS}/{_TOKEN}{unique()}", unique()
        await self._store.put(key, content.encode(), create_only=True)
        return key, content

    async def take_token(self, key: str, content: str) -> None:
        """Remove another machine's token. Raises NotStored if it is not there."""
        if not key.startswith(f"{CLAIMS}/{_TOKEN}") or await self._store.read(key) != (
            content.encode()
        ):
            raise NotStored("read", key, "this is not the token of the other machine")
        await self._store.delete([key])

    async def check(self, *, at_once: bool = False) -> None:
        """Raise ClaimLost if a newer incarnation has claimed the storage. Looks once a second.

        Raises StorageUnavailable if its own claim is missing: the storage may be an empty mount
        point, which must be neither trusted nor written to.
        """
        if at_once:
            await self._look()
            return
        if (age_s := self._age_s()) < _LOOK_S:
            if age_s >= _AHEAD_S and not self._looking.locked():
                self._look_ahead()
            return
        await self._look_once(_LOOK_S)

    def _age_s(self) -> float:
        return asyncio.get_running_loop().time() - self._looked_at

    def _look_ahead(self) -> None:
        """Look in the background; otherwise all uploads would wait once a second."""
        if self._ahead is None or self._ahead.done():
            self._ahead = asyncio.create_task(self._try_to_look())

    async def _try_to_look(self) -> None:
        with suppress(StorageError):  # the next write looks again
            await self._look_once(_AHEAD_S)

    async def _look_once(self, after_s: float) -> None:
        # One look serves all waiting uploads: with 16 at once, looks were 15% of all requests.
        async with self._looking:
            if self._age_s() >= after_s:
                await self._look()

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        keys = await self._claim_keys()
        newest = Claim.newest(keys)
        if newest is not None and newest.number > self._number:
            cause = "a newer restore of this experiment has taken over"
            raise ClaimLost("write", self.where, cause)
        if self.claimed is None or self.claimed.key not in keys:
            key = "" if self.claimed is None else self.claimed.key
            cause = f"it no longer has {key}, this run's claim"
            raise StorageUnavailable("write", self.where, cause, "Is it still mounted?")
        self._looked_at = now

    @property
    def _number(self) -> int:
        """The number of this incarnation's claim; 0 before it has one."""
        return 0 if self.claimed is None else self.claimed.number

    @property
    def conditional_puts(self) -> bool | None:
        """Whether the storage refuses one of two simultaneous puts of a new object; None as long
        as that is unknown."""
        return self._store.conditional_puts

    def is_first_upload_to(self, folder: str) -> bool:
        """True if the folder must be empty in storage, because no incarnation has written to it.

        True at most once per folder, and only for names after those of earlier folders next to it.
        """
        above, _, name = folder.rpartition("/")
        is_first = self._was_empty and name > self._last_folders.get(above, "")
        if is_first:
            self._last_folders[above] = name
        return is_first

    @property
    def is_contestable(self) -> bool:
        """True if two simultaneous restores could both have claimed the storage."""
        return self._number > 1 and not self.conditional_puts

    @property
    def has_folders(self) -> bool:
        return self._store.has_folders

    async def remove_leftovers(self) -> None:
        """Remove the leftovers of interrupted puts of earlier incarnations."""
        if self._store.has_folders:
            prefix = "" if self._number > 1 else CLAIMS
            found = await self._store.list(prefix, leftovers=True)
            await self.delete([entry.key for entry in found if is_leftover(entry.name)])

    async def list(self, prefix: str, *, leftovers: bool = False) -> list[ObjectInfo]:
        return await self._store.list(prefix, leftovers=leftovers)

    async def sizes(self, prefix: str) -> dict[str, int]:
        """The sizes of all objects in the folder and below, by key."""
        return {entry.key: entry.size for entry in await self._store.list(prefix)}

    async def read(self, key: str) -> bytes:
        return await self._store.read(key)

    async def read_small(self, key: str, most: int) -> bytes:
        """Read an object. Raises StorageRefused, before reading, if it has more than `most`
        bytes."""
        return await read_object(self._store, key, most)

    async def head(self, key: str) -> ObjectInfo | None:
        """The entry of one object; None if it does not exist."""
        return await self._store.head(key)

    async def put(self, key: str, data: bytes, *, create_only: bool = False) -> None:
        """Raises AlreadyStored, ClaimLost."""
        await self.check()
        await self._store.put(key, data, create_only=create_only)

    async def put_and_verify(self, key: str, data: bytes, *, create_only: bool = False) -> None:
        """Put an object that makes others visible, and read it back. Raises AlreadyStored,
        ClaimLost."""
        await self.put(key, data, create_only=create_only)
        try:
            is_there = await self._store.read(key) == data
        except NotStored:
            is_there = False
        if not is_there:
            raise unconfirmed(key)

    async def upload(self, key: str, source: Path) -> PutResult:
        """Put a file; the number of simultaneous puts is limited. Raises ClaimLost."""
        async with self._slots:
            await self.check()
            return await self._store.put(key, source)

    async def upload_new(self, key: str, source: Path) -> PutResult:
        """Put a file that is never replaced, not even by a delayed put of an older incarnation, if
        the store has conditional puts.

        Continues an interrupted put. Raises AlreadyStored, ClaimLost.
        """
        async with self._slots:
            await self.check()
            self._unfinished.discard(key)
            return await self._store.put(
                key, source, create_only=bool(self.conditional_puts), resumable=True
            )

    async def copy(self, source: ObjectInfo, key: str) -> PutResult:
        """Copy an object inside the storage. Raises ClaimLost, NotStored."""
        async with self._slots:
            await self.check()
            return await self._store.copy(source, key)

    async def holds(self, entry: ObjectInfo, source: Path) -> bool:
        async with self._slots:
            return await self._store.holds(entry, source)

    async def recall_unfinished(self) -> None:
        """Find the unfinished puts of earlier incarnations."""
        if not self.is_new:
            self._unfinished = set(await self._store.unfinished())

    async def abandon(self, folder: str) -> None:
        """Remove the known unfinished puts in a folder. A newer owner that was continuing one of
        them gets an error and begins it again."""
        await self._store.abandon(folder)

    async def abandon_recalled(self) -> None:
        """Remove the unfinished puts of earlier incarnations that were not continued. Raises
        ClaimLost."""
        if self._unfinished:
            await self.check(at_once=True)
            for folder in {key.rpartition("/")[0] for key in self._unfinished}:
                await self._store.abandon(folder)
            self._unfinished.clear()

    async def download(self, key: str, target: Path) -> None:
        """Get a file; the number of simultaneous downloads is limited."""
        async with self._slots:
            target.parent.mkdir(parents=True, exist_ok=True)
            await self._store.get(key, target)

    async def get_hashed(self, entry: ObjectInfo, target: Path, algorithm: str | None) -> str:
        """Get a new file and its checksum; the number of simultaneous downloads is limited."""
        async with self._slots:
            return await self._store.get_hashed(entry, target, algorithm)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. Checks the claim again, because this process may have been suspended
        since it listed them. Raises ClaimLost."""
        if keys:
            await self.check(at_once=True)
            await self._store.delete(keys)

    async def close(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.wait([self._ahead])
        await self._store.close()
