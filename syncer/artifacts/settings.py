"""The uploader's settings, and the comparison that decides which files to send and to remove.

An index lists the files of a folder (a trial's, or the experiment's own files) in storage, each
with its state when it was sent. The local folder is the original, storage its mirror: new and
changed files are sent, and files that the user removed here are removed there. Only files in the
index are ever removed, and the index is in the folder itself: if the folder is lost, on another
machine or on a disk that is not mounted, nothing is known and nothing is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.stores.location import Location

if TYPE_CHECKING:
    from holdfast.syncer.stores.owned_store import Claim

# In a trial's local folder: the index of its files in storage. Never uploaded.
INDEX_NAME = ".stored.json"
# In the experiment's local folder: the folders of ended trials that storage has as they are. Never
# uploaded.
ENDED_NAME = ".stored-trials"
# In a trial's folder in storage: the artifacts there, with checksums.
LISTING_NAME = ".artifacts.json"
# A file that changed more recently than this may change again without different times: Linux keeps
# them in steps of 4 ms, the coarsest file systems (FAT) in steps of 2 s.
SETTLED_AFTER_S = 2.0


class FileStat(NamedTuple):
    """A cheap way to see that a file has changed: size in bytes, times in ns since 1970.

    `ctime_ns` detects tools that restore the mtime (`cp -p`, `rsync -t`). A tuple, not a
    dataclass, because there is one per file.
    """

    size: int
    mtime_ns: int
    ctime_ns: int

    def is_settled(self, now_ns: int) -> bool:
        """True if a later change would change the times."""
        return now_ns - max(self.mtime_ns, self.ctime_ns) > SETTLED_AFTER_S * 1e9


class StoredFile(NamedTuple):
    """A file in storage: its state here when it was read, and the SHA-256 of the content sent.

    The checksum is "" if it is uncertain. Without `is_settled` the file is read again each time.
    """

    stat: FileStat
    checksum: str
    is_settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderScan:
    """The result of a walk through a folder: files by key, and skipped keys with the reason.

    If a folder could not be read, everything below it is unknown. `is_there` is False if the
    folder itself is missing, `has_index` if it has no index.
    """

    files: Mapping[str, FileStat]
    skipped: Mapping[str, str]
    is_there: bool = True
    has_index: bool = True

    def hides(self, key: str) -> bool:
        """True if the file may exist although the walk did not find it."""
        skipped = self.skipped
        return bool(skipped) and any(above in skipped for above in (key, *folders_above(key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes to make, in this order.

    `blocking` are keys to remove because they are in the way (a file in place of what is now a
    folder), `to_read` keys to read, and to send if they changed, `deleted` keys to remove.
    """

    blocking: tuple[str, ...]
    to_read: tuple[str, ...]
    deleted: tuple[str, ...]


def changes(
    stored: Mapping[str, StoredFile],
    here: FolderScan,
    covers: Callable[[str], bool] = lambda key: True,
) -> Changes:
    """Compare the local files with the index. Only stored keys that `covers` selects count as
    deleted."""
    to_read = tuple(key for key, stat in here.files.items() if _may_differ(stored.get(key), stat))
    deleted: list[str] = []
    if here.is_there:
        missing = (key for key in stored if key not in here.files)
        deleted = [key for key in missing if covers(key) and not here.hides(key)]
    folders = {above for key in to_read for above in folders_above(key)}
    blocking = {
        key
        for key in deleted
        if key in folders or any(above in here.files for above in folders_above(key))
    }
    return Changes(
        blocking=tuple(key for key in deleted if key in blocking),
        to_read=to_read,
        deleted=tuple(key for key in deleted if key not in blocking),
    )


def _may_differ(stored: StoredFile | None, stat: FileStat) -> bool:
    if stored is None or not stored.is_settled or not stored.checksum:
        return True
    return stored.stat != stat


def folders_above(key: str) -> Iterator[str]:
    """The folders that contain a key, innermost first."""
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key


def uncertain(file: StoredFile) -> StoredFile:
    """The same file, whose content in storage is now uncertain."""
    return file._replace(checksum="", is_settled=False)


def missing_in_storage(
    stored: Mapping[str, StoredFile], sizes: Mapping[str, int], keys: Iterable[str]
) -> list[str]:
    """The keys that a listing of the storage, with `sizes`, lacks or shows with another size."""
    return [key for key in keys if key in stored and sizes.get(key) != stored[key].stat.size]


_SHOWN = 5


def skipped_text(skipped: Mapping[str, str], shown: int = _SHOWN) -> str:
    """`a: why; b: why; and 3 more`, with names that fit on a line."""
    lines = [f"{_printable(key)}: {why}" for key, why in list(skipped.items())[:shown]]
    more = len(skipped) - len(lines)
    return "; ".join([*lines, f"and {more:,} more"] if more else lines)


def _printable(key: str) -> str:
    return key if key.isprintable() else ascii(key)


def _none(key: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class UploaderSettings:
    """The facts that the uploader needs. `storage` is None if the local tree is the storage.

    `is_record(key)` selects the small files that are always uploaded, `is_remade(key)` those of
    them that every restore rewrites; `artifacts` adds all other files. Names in `private` in the
    experiment's folder, and those in `private_inside` in a trial's, are never uploaded as files,
    nor are a trial's checkpoints (folders with `is_checkpoint(name)`). `disk_deadline_s` is how
    long a call may wait for the disk, 0 for no deadline. `claimed` is the claim that an earlier
    uploader of this incarnation made, None if there is none.

    `node` names the node of this uploader; "" for the owner's, the controller's. A node's uploader
    has the storage and the claim of the owner. `shared` is the owner's tree as nodes see it, if
    that tree is the storage: nodes write there, so the owner claims it. `on_nodes`: trials run on
    nodes, which send the trials' own files.
    """

    root: Path
    storage: Location | None
    experiment_id: str
    journal: str
    head: str
    is_record: Callable[[str], bool]
    is_checkpoint: Callable[[str], bool]
    private: tuple[str, ...] = ()
    private_inside: tuple[str, ...] = ()
    is_remade: Callable[[str], bool] = _none
    artifacts: bool = False
    parallel: int = 16
    timeout_s: float = 1800.0
    disk_deadline_s: float = 0.0
    claimed: Claim | None = None
    node: str = ""
    shared: Location | None = None
    on_nodes: bool = False

    def is_ours(self, key: str, *, is_folder: bool) -> bool:
        """True if the file or folder is uploaded in another way, or is for holdfast only."""
        above, _, name = key.rpartition("/")
        if name[0] == "." and is_leftover(name):
            return True
        if not above:
            return name in (*self.private, self.journal, self.head, INDEX_NAME, ENDED_NAME)
        if "/" in above:
            return False
        if name in (*self.private_inside, INDEX_NAME, LISTING_NAME):
            return True
        if self.node and self.is_remade(key):
            return True  # the controller writes the records, from the journal
        return is_folder and self.is_checkpoint(name)
