"""The indexes of all folders of a tree: read at first use, and saved so that no death of a process
loses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from holdfast.syncer.artifacts.stored_index import FolderIndex, LocalIndex
from holdfast.syncer.files import threads
from holdfast.syncer.stores.claim import Claim


class Indexes:
    """The indexes by folder. `warn` is called once if they cannot be written."""

    def __init__(self, root: Path, warn: Callable[[str], None]) -> None:
        self._files = LocalIndex(root)
        self._warn = warn
        self._known: dict[str, FolderIndex] = {}
        self._saving = asyncio.Lock()
        self._has_warned = False

    async def open(self, claim: Claim, *, is_continued: bool) -> None:
        """Start under this claim, with the tree's own index of storage if it is still valid."""
        try:
            index = await threads.call(partial(self._files.open, claim, is_continued=is_continued))
        except OSError as error:
            self._warn_unsaved(error)
            index = FolderIndex("")
        self._known = {"": index}

    @property
    def since(self) -> int:
        """The first of the consecutive claims under which this tree's indexes were written."""
        return self._files.since

    async def of(self, folder: str) -> FolderIndex:
        """The index of a folder."""
        loaded = await threads.call(partial(self.read_unknown, folder))
        return self.known(folder, loaded)

    def read_unknown(self, folder: str) -> FolderIndex | None:
        """Read the index of a folder, in a thread; None if it is known already."""
        if folder in self._known:
            return None
        with suppress(OSError):  # it does no harm
            self._files.remove_leftover(folder)
        return self._files.load(folder)

    def known(self, folder: str, loaded: FolderIndex | None) -> FolderIndex:
        """The index of a folder, given what `read_unknown` has returned for it."""
        if loaded is not None:
            self._known.setdefault(folder, loaded)
        return self._known[folder]

    def forget(self, folder: str) -> None:
        """The folder's files were removed here, and stay in storage."""
        self._known.pop(folder, None)

    async def save(self, index: FolderIndex) -> None:
        """Write the index of a folder to the kernel."""
        async with self._saving:
            if index.is_saved:
                return
            index.is_saved = True  # later changes are saved next time
            try:
                await threads.call(partial(self._files.save, index.copy()))
                index.has_file = True
            except OSError as error:
                index.is_saved = False
                self._warn_unsaved(error)

    def _warn_unsaved(self, error: OSError) -> None:
        """Without the index, a later restore only uploads files unnecessarily."""
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"the index of files in storage cannot be written: {error}")
