"""One round of the mirror: what was found in each folder, and how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.plan import Changes, FolderScan
from holdfast.syncer.artifacts.scan import Scope
from holdfast.syncer.artifacts.stored_index import FolderIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What lies in a folder, and the index that was read there where none was known yet."""

    folder: str
    found: FolderScan
    index: FolderIndex | None


@dataclass(slots=True)
class FolderSync:
    """One folder in one sync. `sent` are the keys that were put."""

    index: FolderIndex
    found: FolderScan
    changes: Changes
    skipped: dict[str, str]
    sent: set[str] = field(default_factory=set)

    @property
    def has_changed(self) -> bool:
        return bool(self.sent or self.changes.first or self.changes.gone)


@dataclass(slots=True)
class Sync:
    """How far a sync has come, in files and bytes."""

    scope: Scope
    parts: Sequence[FolderSync]
    files: int = 0
    bytes: int = 0
    refused: int = 0
    saved_at: float = 0.0
    told_at: float = 0.0
    total_files: int = 0
    total_bytes: int = 0

    def count(self) -> None:
        reads = [(part, key) for part in self.parts for key in part.changes.read]
        self.total_files = len(reads)
        self.total_bytes = sum(part.found.files[key].size for part, key in reads)
