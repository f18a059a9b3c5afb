"""Decides which files of a folder to send to storage, and which to remove there.   PURE

An index lists the files of a folder (a trial's, or the experiment's own files) in storage, each
with its state when it was sent. The local folder is the original, storage its mirror: new and
changed files are sent, and files that the user removed here are removed there. Only files in the
index are ever removed, and the index is in the folder itself: if the folder is lost, on another
machine or on a disk that is not mounted, nothing is known and nothing is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.dataclass import dataclass

# In a trial's local folder: the index of its files in storage. Never uploaded.
INDEX_NAME = ".stored.json"
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
        """Whether a later change would change the times."""
        return now_ns - max(self.mtime_ns, self.ctime_ns) > SETTLED_AFTER_S * 1e9


class Known(NamedTuple):
    """A file in storage: its state here when it was read, and the SHA-256 of the content sent.

    The checksum is "" if it is uncertain. A file that is not `settled` is read again each time.
    """

    facts: FileStat
    checksum: str
    settled: bool


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
        """Whether the file may exist although the walk did not find it."""
        skipped = self.skipped
        return bool(skipped) and any(above in skipped for above in (key, *folders_above(key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes to make, in this order.

    `first` are keys to remove because they are in the way (a file in place of what is now a
    folder), `read` keys to read, and to send if they changed, `gone` keys to remove.
    """

    first: tuple[str, ...]
    read: tuple[str, ...]
    gone: tuple[str, ...]


def changes(
    known: Mapping[str, Known], found: FolderScan, covers: Callable[[str], bool] = lambda key: True
) -> Changes:
    """Compare the local files with the index. Only known keys that `covers` selects can be
    gone."""
    read = tuple(key for key, facts in found.files.items() if _may_differ(known.get(key), facts))
    gone: list[str] = []
    if found.is_there:
        gone = [
            key for key in known if key not in found.files and covers(key) and not found.hides(key)
        ]
    folders = {above for key in read for above in folders_above(key)}
    first = [
        key
        for key in gone
        if key in folders or any(above in found.files for above in folders_above(key))
    ]
    in_the_way = set(first)
    return Changes(
        first=tuple(first),
        read=read,
        gone=tuple(key for key in gone if key not in in_the_way),
    )


def _may_differ(known: Known | None, facts: FileStat) -> bool:
    return known is None or not known.settled or not known.checksum or known.facts != facts


def folders_above(key: str) -> Iterator[str]:
    """The folders that contain a key, innermost first."""
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key


def uncertain(known: Known) -> Known:
    """The same file, whose content in storage is now uncertain."""
    return known._replace(checksum="", settled=False)


def missing_there(
    known: Mapping[str, Known], present: Mapping[str, int], keys: Iterable[str]
) -> list[str]:
    """The keys that a listing of the storage lacks or shows with another size."""
    return [key for key in keys if key in known and present.get(key) != known[key].facts.size]


_SHOWN = 5


def skipped_text(skipped: Mapping[str, str], shown: int = _SHOWN) -> str:
    """`a: why; b: why; and 3 more`, with names that fit on a line."""
    lines = [f"{_printable(key)}: {why}" for key, why in list(skipped.items())[:shown]]
    more = len(skipped) - len(lines)
    return "; ".join([*lines, f"and {more:,} more"] if more else lines)


def _printable(key: str) -> str:
    return key if key.isprintable() else ascii(key)
