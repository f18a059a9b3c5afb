"""Trying the storage before trial 1: write, read back, list, delete."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from holdfast.syncer.durable import unique
from holdfast.syncer.errors import StorageError, StorageUnavailable
from holdfast.syncer.store import Store

DEADLINE_S = 10.0
_CLEANUP_S = 2.0
_UNREACHABLE = (
    "Check that the storage can be reached from this machine, "
    "and its endpoint_override, port and scheme"
)
_UNUSABLE = "Choose a storage_path where this user may write, read, list and delete"


async def preflight(store: Store, public_name: str, *, deadline_s: float = DEADLINE_S) -> None:
    """Write, read, list and delete one small object in a folder of a unique name.

    Returns if all four work within `deadline_s` in all. Raises StorageError whose `operation`
    says which one failed, `cause` what answered and `advice` what to do; `where` is `public_name`.
    """
    trial = _Trial(store, f".holdfast-preflight-{unique()}")
    try:
        async with asyncio.timeout(deadline_s):
            await trial.run()
    except TimeoutError as error:
        cause = f"no answer within {deadline_s:g} s"
        raise StorageUnavailable(trial.tried, public_name, cause, _UNREACHABLE) from error
    except StorageError as error:
        await trial.clean_up()
        told = error.during(trial.tried, public_name)
        unreachable = isinstance(told, StorageUnavailable)
        told.advice = told.advice or (_UNREACHABLE if unreachable else _UNUSABLE)
        raise told from error


class _Trial:
    """The four operations, and which of them was begun last."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._key = f"{folder}/probe"
        self.tried = "write to"

    async def run(self) -> None:
        written = unique().encode()
        await self._store.put(self._key, written)
        self.tried = "read from"
        if await self._store.read(self._key) != written:
            raise StorageUnavailable("read", self._key, "what was written came back different")
        self.tried = "list"
        if [entry.key for entry in await self._store.list(self._folder)] != [self._key]:
            raise StorageUnavailable("list", self._key, "what was written is not in the listing")
        self.tried = "delete from"
        await self._store.delete([self._key])

    async def clean_up(self) -> None:
        """Take away what was written before the failure, if the store lets us."""
        if self.tried == "write to":
            return
        with suppress(StorageError, TimeoutError):  # the first failure is the one to tell
            async with asyncio.timeout(_CLEANUP_S):
                await self._store.delete([self._key])
