"""Multipart uploads that were begun and can be continued or aborted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from holdfast.syncer.stores.s3.pages import odd_answer
from holdfast.syncer.stores.store import folder_prefix


class UnfinishedUploads:
    """The ids of such uploads by key, as far as they are known; one per key."""

    def __init__(
        self, prefix: str, where: str, abort: Callable[[str, str], Awaitable[None]]
    ) -> None:
        """`prefix` comes before each key in the bucket; `abort` takes a key and an id."""
        self._prefix = prefix
        self._where = where
        self._abort = abort
        self._ids: dict[str, str] = {}

    def take(self, key: str) -> str | None:
        return self._ids.pop(key, None)

    def leave(self, key: str, upload_id: str) -> None:
        self._ids[key] = upload_id

    async def add(self, uploads: Iterable[Mapping[str, Any]]) -> None:
        """Add uploads that the storage has listed. Aborts an older upload of the same key.

        Raises StorageError.
        """
        for upload in uploads:
            name, upload_id = upload.get("Key"), upload.get("UploadId")
            if not isinstance(name, str) or not name.startswith(self._prefix) or not upload_id:
                text = f"an upload of {name!r:.100}, which is not in this folder"
                raise odd_answer(self._where, text)
            key = name.removeprefix(self._prefix)
            older = self._ids.get(key)
            if older is not None and older != upload_id:
                await self._abort(key, older)
            self._ids[key] = upload_id

    def keys(self, prefix: str) -> list[str]:
        """The keys in the folder `prefix` and below, sorted."""
        below = folder_prefix(prefix)
        return sorted(key for key in self._ids if key.startswith(below))

    async def abandon(self, prefix: str) -> None:
        """Abort the uploads in the folder `prefix` and below."""
        for key in self.keys(prefix):
            await self._abort(key, self._ids.pop(key))
