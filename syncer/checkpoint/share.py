"""A checkpoint of ranks on several nodes: each uploads its share, and one manifest comes last.

The shares of different nodes have different files. The manifest is written by the owner of the
storage, which has the facts about the files of all shares.
"""

from __future__ import annotations

from holdfast.dataclass import dataclass
from holdfast.syncer.checkpoint.manifest import Manifest
from holdfast.syncer.checkpoint.upload import Upload, put_marker
from holdfast.syncer.errors import ManifestMismatch, NotStored
from holdfast.syncer.files.tree import MANIFEST_NAME, METADATA_NAME
from holdfast.syncer.stores.owned_store import OwnedStore


@dataclass(slots=True, kw_only=True)
class ShareUpload(Upload):
    """The upload of one node's share; `written` has its files. It touches no others."""

    async def perform(self) -> None:
        """Upload the files. Raises StorageError."""
        storage, marker = self.storage, f"{self.folder}/{MANIFEST_NAME}"
        await storage.check()
        present = {entry.key: entry for entry in await storage.list(self.folder)}
        if marker in present:
            if self._is_part_of(await storage.read(marker)):
                return  # the owner has completed it meanwhile
            await storage.delete([marker])
        ours = await self._ours(present)
        own = {f"{self.folder}/{name}" for name in self.written.files}
        await storage.delete(sorted((present.keys() & own) - ours))
        await self.committed.load(storage, self.folder.rpartition("/")[0])
        await self._bring_files(ours)
        await self._confirm()

    def _is_part_of(self, content: bytes) -> bool:
        try:
            whole = Manifest.from_bytes(content, self.folder)
        except ManifestMismatch:
            return False
        return self.written.files.items() <= whole.files.items()


async def complete(storage: OwnedStore, folder: str, whole: Manifest) -> None:
    """Write the manifest of a checkpoint whose shares are in storage.

    Removes what an earlier attempt has left there. Raises NotStored if a file is missing, or
    another StorageError.
    """
    content, marker = whole.to_bytes(), f"{folder}/{MANIFEST_NAME}"
    present = {entry.key: entry for entry in await storage.list(folder, leftovers=True)}
    sizes = {key.removeprefix(f"{folder}/"): entry.size for key, entry in present.items()}
    if problems := whole.differences(sizes):
        await storage.check(at_once=True)
        raise NotStored("complete", folder, "; ".join(problems))
    if marker in present:
        if await storage.read(marker) == content:
            return
        await storage.delete([marker])
    known = {f"{folder}/{name}" for name in whole.files} | {marker, f"{folder}/{METADATA_NAME}"}
    await storage.delete(sorted(present.keys() - known))
    await put_marker(storage, folder, content)
