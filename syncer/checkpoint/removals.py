"""Removes superseded checkpoints, here and in storage.

Checkpoints that cannot be removed, because a process reads them or the system refuses, are retried
at each later removal and at the end; those that remain are listed. The next run removes them.

It is apart from `reading.py`, which workers and the projector import: they need no store, and no
event loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.checkpoint.reading import BeingRead, retire, unread
from holdfast.syncer.errors import StorageError, innermost
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.files.tree import (
    MANIFEST_NAME,
    is_ours,
)
from holdfast.syncer.stores.owned_store import ClaimLost, OwnedStore
from holdfast.syncer.stores.retry import StorageRetry
from holdfast.trees import Mounted, delete_tree, refuse_mounts

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """A folder that remains: its current path, the reason, and when to retry."""

    place: Path
    why: str
    pause_s: float = 0.0
    not_before: float = 0.0


class LocalRemovals:
    """Removes folders below `root`; `refused` is called with the first one that the system
    refuses."""

    def __init__(self, root: Path, refused: Callable[[str, str], None]) -> None:
        self._root = root
        self._refused = refused
        self._left: dict[str, _Left] = {}

    @property
    def left(self) -> Iterator[str]:
        """A line for each folder that remains, with the reason."""
        return (f"{left.place}: {left.why}" for left in self._left.values())

    async def remove(self, folders: Sequence[str] = (), *, at_last: bool = False) -> None:
        """Remove these folders and any remaining ones.

        After a refusal, a folder is retried only after a pause, unless this is the last time.
        Missing folders are fine.
        """
        for folder in folders:
            self._left.setdefault(folder, _Left(place=self._root / folder, why="not done yet"))
        now = time.monotonic()
        due = {f: left for f, left in self._left.items() if at_last or left.not_before <= now}
        # Concurrent calls must leave these alone.
        self._left |= {f: replace(left, not_before=math.inf) for f, left in due.items()}
        tried = await threads.call(lambda: {f: _attempt(left) for f, left in due.items()})
        for folder, still in tried.items():
            self._left.pop(folder, None)
            if still is not None:
                self._left[folder] = still
                if still.pause_s:
                    self._refused(str(still.place), still.why)


def _attempt(left: _Left) -> _Left | None:
    """Try to remove a folder; None if it is gone."""
    place = left.place
    if place.parent.is_symlink():
        return _Left(place=place, why=f"{place.parent} is a link, which may lead elsewhere")
    try:
        if not is_leftover(place.name):
            if place.is_dir() and not is_ours(place):
                return None  # the script's own
            aside = retire(place)
            if aside is None:
                return None
            place = aside
        delete_tree(place)
    except BeingRead as error:
        return _Left(place=place, why=error.cause)
    except OSError as error:
        pause_s = min(2 * left.pause_s or _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        why = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
        not_before = time.monotonic() + pause_s
        return _Left(place=place, why=why, pause_s=pause_s, not_before=not_before)
    return None


class StoredRemovals:
    """Removes folders from storage that no record there names.

    `here` is the storage as a directory on this machine, None if it is elsewhere.
    """

    def __init__(
        self,
        storage: OwnedStore,
        here: Path | None,
        *,
        timeout_s: float,
        refused: Callable[[str, str], None],
    ) -> None:
        self._storage = storage
        self._here = here
        self._refused = refused
        self._retry = StorageRetry(
            timeout_s=timeout_s,
            where=storage.where,
            tell=lambda text: refused(storage.where, text),
        )
        self._left: dict[str, str] = {}

    @property
    def left(self) -> Iterator[str]:
        """A line for each folder that remains, with the reason."""
        trying = self._retry.unfinished
        for folder, why in self._left.items():
            yield f"{self._storage.where}/{folder}: {trying.get(_task(folder), why)}"

    async def remove(self, folders: Sequence[str] = (), *, at_last: bool = False) -> None:
        """Remove these folders and any remaining ones; the last time without retries.

        Raises ClaimLost; `left` has all other errors.
        """
        for folder in folders:
            self._left.setdefault(folder, "not done yet")
        for above in sorted({_above(folder) for folder in self._left}):
            gone = {folder for folder in self._left if _above(folder) == above}
            attempt = partial(self._remove, above, gone)
            try:
                if at_last:
                    await attempt()
                else:
                    await self._retry.until_done(_task(min(gone)), attempt)
            except (StorageError, BaseExceptionGroup) as group:
                error = innermost(group)
                if isinstance(error, ClaimLost):
                    raise
                self._left |= dict.fromkeys(gone, str(error))
                self._refused(f"{self._storage.where}/{min(gone)}", str(error))

    async def _remove(self, above: str, folders: set[str]) -> None:
        """Remove the manifests first, so that the rest does not look like a checkpoint.

        One listing serves all folders of a trial: a restore removes every one that ever existed.
        """
        with self._unread(folders) as free:
            found = [
                entry
                for entry in await self._storage.list(above, leftovers=True)
                if f"{above}/{entry.key.removeprefix(f'{above}/').partition('/')[0]}" in free
            ]
            markers = [entry.key for entry in found if entry.name == MANIFEST_NAME]
            if self._storage.has_folders:
                # An interrupted removal may have left an empty folder.
                markers = [f"{folder}/{MANIFEST_NAME}" for folder in free]
            await self._storage.delete(markers)
            await self._storage.delete([entry.key for entry in found if entry.key not in markers])
        for folder in free:
            self._left.pop(folder, None)

    @contextmanager
    def _unread(self, folders: set[str]) -> Iterator[set[str]]:
        """Lock the folders without local readers; note the others."""
        if self._here is None:
            yield folders
            return
        free = set()
        with ExitStack() as held:
            for folder in folders:
                try:
                    held.enter_context(unread(self._here / folder))
                    refuse_mounts(self._here / folder)
                except BeingRead as error:
                    self._left[folder] = error.cause
                except Mounted as error:
                    why = f"{error.strerror}: {error.filename}"
                    if self._left.get(folder) != why:
                        self._left[folder] = why
                        self._refused(f"{self._storage.where}/{folder}", why)
                else:
                    free.add(folder)
            yield free


def _above(folder: str) -> str:
    return folder.rpartition("/")[0]


def _task(folder: str) -> str:
    return f"remove from {_above(folder)}"
