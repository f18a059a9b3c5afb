"""Which files of a folder are to be sent to storage, and which removed there.   PURE

What storage has of a folder (a trial's, or the experiment's own files) is known by an index: for
each file what it was when it was sent. The folder here is the original, storage its mirror: what
is new or changed is sent, and what the user removed here is removed there. Only files that the
index knows are ever removed, and it lies in the folder itself: where the folder is lost, on
another machine or with a disk that is not mounted, nothing is known and nothing is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.dataclass import dataclass

# In a trial's folder here: what storage has of it. Never uploaded.
INDEX_NAME = ".stored.json"
# In a trial's folder in storage: the artifacts that are there, with checksums.
LISTING_NAME = ".artifacts.json"
# A file that has changed less than so long ago may change again without its times showing it:
# they are kept in steps of 4 ms by Linux, and of 2 s by the coarsest file systems (FAT).
SETTLED_AFTER_S = 2.0


class FileStat(NamedTuple):
    """What tells cheaply that a file has changed. The size in bytes, times in ns since 1970.

    `ctime_ns` catches what restores the mtime (`cp -p`, `rsync -t`). A tuple, not a dataclass:
    there are as many as files.
    """

    size: int
    mtime_ns: int
    ctime_ns: int

    def is_settled(self, now_ns: int) -> bool:
        """Whether a later change would show."""
        return now_ns - max(self.mtime_ns, self.ctime_ns) > SETTLED_AFTER_S * 1e9


class Known(NamedTuple):
    """A file that storage has: what it was here when it was read, and the SHA-256 of what was
    sent; "" where that is uncertain. One that is not `settled` is read again each time."""

    facts: FileStat
    checksum: str
    settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderScan:
    """What a walk through a folder has found: files by key, and by key why something was passed
    over; for a folder that could not be looked into, all below it is out of sight.

    `is_there` is False where the folder itself is not, `has_index` where it has no index (any
    more)."""

    files: Mapping[str, FileStat]
    skipped: Mapping[str, str]
    is_there: bool = True
    has_index: bool = True

    def hides(self, key: str) -> bool:
        """Whether the file may be there all the same."""
        skipped = self.skipped
        return bool(skipped) and any(above in skipped for above in (key, *folders_above(key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is to be done, in this order: keys to remove that stand in the way of others (a file
    where there is a folder now), keys to read, and send if they changed, and keys to remove."""

    first: tuple[str, ...]
    read: tuple[str, ...]
    gone: tuple[str, ...]


def changes(
    known: Mapping[str, Known], found: FolderScan, covers: Callable[[str], bool] = lambda key: True
) -> Changes:
    """Hold what is here against what storage has. `covers` says which known keys the walk was
    after: others are not gone because it did not bring them."""
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
    """The folders that a key is in, from the innermost."""
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key


def uncertain(known: Known) -> Known:
    """The same file, of which storage may have another content from now on."""
    return known._replace(checksum="", settled=False)


def missing_there(
    known: Mapping[str, Known], present: Mapping[str, int], keys: Iterable[str]
) -> list[str]:
    """Those of the keys that a listing of the storage does not show as they were sent."""
    return [key for key in keys if key in known and present.get(key) != known[key].facts.size]


_SHOWN = 5


def told(skipped: Mapping[str, str], shown: int = _SHOWN) -> str:
    """`a: why; b: why; and 3 more`, with names that fit on a line."""
    lines = [f"{_printable(key)}: {why}" for key, why in list(skipped.items())[:shown]]
    more = len(skipped) - len(lines)
    return "; ".join([*lines, f"and {more:,} more"] if more else lines)


def _printable(key: str) -> str:
    return key if key.isprintable() else ascii(key)
