"""Checks the storage before trial 1: writes, reads, lists and deletes an object."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from holdfast.syncer.errors import StorageBusy, StorageError, StorageUnavailable
from holdfast.syncer.files.durable import unique
from holdfast.syncer.stores.store import ObjectInfo, Store

R = TypeVar("R")

DEADLINE_S = 10.0
_CLEANUP_S = 2.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 10.0
_FOLDER = ".holdfast-preflight"
# A probe that is this much older than this run's, by the store's clock, was abandoned.
_ABANDONED_S = 3600.0
_UNREACHABLE = (
    "Check that the storage can be reached from this machine, "
    "and its endpoint_override, port and scheme"
)
_UNUSABLE = "Choose a storage_path where this user may write, read, list and delete"


async def preflight(
    store: Store, public_name: str, *, deadline_s: float = DEADLINE_S, owner: str = ""
) -> None:
    """Write, read, list and delete a small object with a unique name in a folder for probes.

    Also deletes the probes that other runs left more than an hour ago, and all earlier probes of
    the same `owner`, a name that only one process uses at a time. Returns if each of these
    operations succeeds within `deadline_s`. Raises StorageError: `operation` is the one that
    failed, and `where` is `public_name`.
    """
    check = _Preflight(store, f"{_FOLDER}/{owner}" if owner else _FOLDER, is_alone=bool(owner))
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(deadline_s) as deadline:
            async for _ in check.answers():
                deadline.reschedule(loop.time() + deadline_s)
    except TimeoutError as error:
        cause = f"no answer within {deadline_s:g} s"
        raise StorageUnavailable(check.tried, public_name, cause, _UNREACHABLE) from error
    except StorageError as error:
        await check.clean_up()
        told = error.during(check.tried, public_name)
        unreachable = isinstance(told, StorageUnavailable)
        told.advice = told.advice or (_UNREACHABLE if unreachable else _UNUSABLE)
        raise told from error


def when_ready(
    perform: Callable[[], R], public_name: str, *, timeout_s: float, tell: Callable[[str], None]
) -> R:
    """Call `perform`, and retry for `timeout_s` while the storage is overloaded. For callers
    without a loop. `tell` is called once with a message about that."""
    until, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    while True:
        try:
            return perform()
        except StorageBusy as error:
            if time.monotonic() + pause_s > until:
                raise
            if pause_s == _FIRST_PAUSE_S:
                tell(
                    f"cannot {error.operation} {public_name}: {error.cause}. Waiting for it, "
                    f"{timeout_s:g} s at most"
                )
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class _Preflight:
    """The four operations; `tried` is the current one."""

    def __init__(self, store: Store, folder: str, *, is_alone: bool) -> None:
        self._store = store
        self._folder = folder
        self._key = f"{folder}/{unique()}"
        self._is_alone = is_alone
        self.tried = "write to"

    async def answers(self) -> AsyncIterator[None]:
        """Perform the operations; yields after each."""
        written = unique().encode()
        await self._store.put(self._key, written)
        yield
        self.tried = "read from"
        if await self._store.read(self._key) != written:
            raise StorageUnavailable("read", self._key, "it does not return the written bytes")
        yield
        self.tried = "list"
        listed = await self._store.list(_FOLDER, leftovers=True)
        ours = next((entry for entry in listed if entry.key == self._key), None)
        if ours is None:
            raise StorageUnavailable("list", self._key, "the listing lacks the written object")
        yield
        self.tried = "delete from"
        await self._store.delete([self._key])
        yield
        if abandoned := self._abandoned(listed, ours):
            with suppress(StorageError):  # they may be another user's, and do no harm
                await self._store.delete(abandoned)

    async def clean_up(self) -> None:
        """Delete the object that was written before the failure, if possible."""
        if self.tried == "write to":
            return
        with suppress(StorageError, TimeoutError):  # the first failure is reported
            async with asyncio.timeout(_CLEANUP_S):
                await self._store.delete([self._key])

    def _abandoned(self, listed: Sequence[ObjectInfo], ours: ObjectInfo) -> list[str]:
        """The keys of abandoned probes."""
        others = [entry for entry in listed if entry.key != ours.key]
        owned = [entry.key for entry in others if entry.key.startswith(f"{self._folder}/")]
        if ours.modified is None:
            return owned if self._is_alone else []
        long_ago = ours.modified - _ABANDONED_S
        old = [entry.key for entry in others if (entry.modified or long_ago) < long_ago]
        return sorted({*old, *owned}) if self._is_alone else old
