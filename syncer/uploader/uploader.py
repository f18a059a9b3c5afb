"""The uploader, the keeper of the controller's tree. It owns the storage: it claims it, publishes
the records there, and removes what no record names.

The keepers of nodes (`node_keeper.py`) use its claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.checkpoint.manifest import Manifest
from holdfast.syncer.checkpoint.reading import StoredRemovals
from holdfast.syncer.checkpoint.upload import complete
from holdfast.syncer.errors import NotStored, StorageError
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.owned_store import Claim, OwnedStore
from holdfast.syncer.uploader.keeper import Keeper
from holdfast.syncer.uploader.publication import Publication

_CONTESTABLE = (
    "{} cannot detect two simultaneous restores: make sure that no other machine restores this "
    "experiment now"
)

_TIDY_S = 5.0


class Uploader(Keeper):
    """Performs orders; each method performs one kind."""

    def __init__(self, settings: UploaderSettings, tell: Callable[[list[Any]], None]) -> None:
        super().__init__(settings, tell)
        self._pending_removal: list[str] = []
        # The storage as nodes see it, which has the claim.
        self._claims = self._storage
        if self._storage is None and settings.shared is not None:
            self._claims = OwnedStore(
                settings.shared.open_store(),
                where=settings.shared.public,
                experiment_id=settings.experiment_id,
                parallel=settings.parallel,
                claimed=settings.claimed,
            )
        if settings.storage is not None and self._storage is not None:
            self._publication = Publication(settings, self._storage, self._retry, self._mirror)
            there = settings.storage.local_path
            self._there = StoredRemovals(
                self._storage,
                None if there is None else Path(there),
                timeout_s=settings.timeout_s,
                refused=self._tell_refusal,
            )

    async def open(self) -> Claim | None:
        """Claim the storage, and return the claim; None if the local tree is the storage, and no
        node writes to it."""
        if self._claims is None:
            return None
        await self._retry.until_done("claim the storage", self._claims.claim)
        if self._storage is None:
            return self._claims.claimed
        if self._storage.is_contestable:
            self._tell(["warning", _CONTESTABLE.format(self._storage.where)])
        await self._retry.until_done("clean up the storage", self._storage.remove_leftovers)
        await self._retry.until_done(
            "look for unfinished uploads", self._storage.recall_unfinished
        )
        await self._mirror.open(is_continued=self._settings.claimed is not None)
        await self._publication.read_published()
        return self._storage.claimed

    async def witness(self, key: str, content: str) -> str:
        """Why a node's token is not in storage; "" if it is. Removes it. Raises StorageError."""
        claims = self._claims
        if claims is None:
            return "this run has no storage that nodes could see"
        try:
            await self._retry.until_done(
                "look for a node's token", lambda: claims.take_token(key, content)
            )
        except NotStored as error:
            return str(error)
        return ""

    async def complete(self, trial_id: str, index: int, folder: str, whole: Manifest) -> None:
        """Write the manifest of a checkpoint whose shares nodes have uploaded, and report that."""
        claims = self._claims
        assert claims is not None
        try:
            await self._retry.until_done(
                f"complete {folder}", lambda: complete(claims, folder, whole)
            )
        except NotStored as error:
            self._tell(["lost", trial_id, index, str(error)])
        else:
            self._tell(["committed", trial_id, index])

    async def check_claim(self) -> None:
        """Raise ClaimLost if another incarnation owns the storage."""
        if self._claims is not None:
            check = partial(self._claims.check, at_once=True)
            await self._retry.until_done("check the claim", check)

    def mark_for_removal(self, folders: Sequence[str]) -> None:
        """Mark checkpoints for removal from storage, after a head that no longer names them is
        published."""
        if self._storage is not None:
            self._pending_removal += folders

    def take_pending_removals(self) -> tuple[str, ...]:
        """Take the marked checkpoints: a publication that is ordered now does not name them."""
        pending, self._pending_removal = tuple(self._pending_removal), []
        return pending

    async def remove(self, folders: Sequence[str]) -> None:
        """Remove checkpoints from storage that no head there names. Raises ClaimLost."""
        if self._storage is not None:
            await self._publication.remove_superseded()
            await self._there.remove(folders)

    async def tidy(self) -> None:
        """Retry the failed removals for the last time."""
        await super().tidy()
        if self._storage is not None:
            await self._there.remove(at_last=True)

    @property
    def left(self) -> list[str]:
        """A line for each superseded checkpoint that remains, with the reason."""
        there = () if self._storage is None else self._there.left
        return [*super().left, *there]

    async def publish(self, end: Position, begins: int) -> None:
        """Make everything in the journal before `end` visible in storage.

        `begins` is the segment in which this experiment begins. Raises StorageError.
        """
        if self._storage is not None:
            await self._publication.extend(end, begins)
            self._tell(["published", end.segment, end.offset])

    async def send_artifacts(self, trials: Sequence[str] | None) -> int:
        """Upload the artifacts of the trials in these folders (None: all), and return the number
        of files sent. Raises StorageError."""
        return 0 if self._storage is None else await self._mirror.send_artifacts(trials)

    def tell_ended(self, words: Mapping[str, str]) -> None:
        """The trials of these folders have ended; see `EndedFolders.tell`."""
        if self._storage is not None:
            self._mirror.ended.tell(words)

    def tell_written(self, words: Mapping[str, str]) -> None:
        """Their files are written; see `EndedFolders.tell_written`."""
        if self._storage is not None:
            self._mirror.ended.tell_written(words)

    async def hand_over(self, trial: str) -> None:
        """Send the files of the trial in this folder for the last time: a node does that from now
        on. Raises StorageError."""
        if self._storage is not None:
            await self._mirror.hand_over(trial)

    async def close(self) -> None:
        """Close the storage, and end uploads of earlier incarnations that were not continued."""
        if self._storage is not None:
            with suppress(StorageError, TimeoutError):  # the next incarnation will find them
                async with asyncio.timeout(_TIDY_S):
                    await self._storage.abandon_recalled()
        elif self._claims is not None:
            await self._claims.close()
        await super().close()
