"""One sync of the mirror: its folders, its progress, and the files that it skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.plan import Changes, FolderScan, skipped_text
from holdfast.syncer.artifacts.scan import Scope
from holdfast.syncer.artifacts.stored_index import FolderIndex

HELD_BACK = "it is being overwritten, and is held back until it stops changing"
# It is normal to meet a file once while it is being written.
_TOLD_AFTER = 3
_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFolder:
    """The files of a folder, and its index if that was not loaded before."""

    folder: str
    scan: FolderScan
    loaded_index: FolderIndex | None


@dataclass(slots=True)
class FolderSync:
    """One folder in one sync. `sent` has the keys that were put."""

    index: FolderIndex
    scan: FolderScan
    changes: Changes
    skipped: dict[str, str]
    sent: set[str] = field(default_factory=set)

    @property
    def is_whole(self) -> bool:
        """Whether storage has each file as it was found."""
        stored = self.index.stored
        found = (stored.get(key) for key in self.scan.files)
        return not self.skipped and all(file is not None and file.checksum for file in found)


@dataclass(slots=True)
class Sync:
    """The progress of a sync, in files and bytes."""

    scope: Scope
    folders: Sequence[FolderSync]
    files: int = 0
    bytes: int = 0
    refused: int = 0
    saved_at: float = 0.0
    reported_at: float = 0.0
    total_files: int = 0
    total_bytes: int = 0

    def count(self) -> None:
        reads = [(folder, key) for folder in self.folders for key in folder.changes.to_read]
        self.total_files = len(reads)
        self.total_bytes = sum(folder.scan.files[key].size for folder, key in reads)


class SkippedFiles:
    """Files that are not persisted: reported once each to `tell`, and listed at the end."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._now: dict[str, Mapping[str, str]] = {}
        self._held_back: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()

    def note(self, looked: Mapping[str, Mapping[str, str]]) -> None:
        """Record the files, by key, that the latest scan of each folder skipped."""
        self._now.update(looked)
        held_back = {
            key for found in self._now.values() for key in found if found[key] == HELD_BACK
        }
        self._held_back = {key: self._held_back.get(key, 0) for key in held_back}
        new: dict[str, str] = {}
        for found in looked.values():
            new |= {key: why for key, why in found.items() if self._is_news(key, why)}
        self._told |= set(new.items())
        if new:
            self._tell(f"not uploaded: {skipped_text(new)}")

    def _is_news(self, key: str, why: str) -> bool:
        if why != HELD_BACK:
            return (key, why) not in self._told
        self._held_back[key] += 1
        return self._held_back[key] == _TOLD_AFTER

    def listed(self) -> str:
        """The files whose current content is not in storage; "" if there are none."""
        left = {key: why for found in self._now.values() for key, why in found.items()}
        if not left:
            return ""
        which = f"these {len(left):,} files are" if len(left) > 1 else "this file is"
        return f"{which} not in storage as here: {skipped_text(left, _LISTED)}"
