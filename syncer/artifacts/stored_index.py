"""The index of a folder's files in storage: a file in the folder itself, and whether it is valid.

It is invalid once another machine has owned the storage, because that may have changed everything.
So each index names the claim under which it was written, and the index of the experiment's own
folder names the range of consecutive claims that this tree has held.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.names import inner_path, shown
from holdfast.syncer.artifacts.plan import INDEX_NAME, FileStat, Known, missing_there, uncertain
from holdfast.syncer.files.durable import TEMPORARY, unique
from holdfast.syncer.stores.plain_files import parse_json, parse_table, read_small

_FORMAT = 1


@dataclass(slots=True)
class FolderIndex:
    """The files in storage of the folder `name` ("" for the experiment's own files), by key.

    `is_checked`: files that an earlier process sent were looked up in storage. `is_listed`: the
    listing in storage has all artifacts. `is_written`: the local index file is up to date.
    `has_file`: the index file exists, or did before the folder was lost. `doubtful` are keys that
    are about to be sent: after a crash they are uncertain to a reader of the file. `earlier` has
    the files in the storage's listing that are not known here, None until it is read.
    """

    name: str
    known: dict[str, Known] = field(default_factory=dict)
    is_checked: bool = True
    is_listed: bool = True
    is_written: bool = True
    has_file: bool = False
    doubtful: set[str] = field(default_factory=set)
    earlier: dict[str, Listed] | None = None

    def copy(self) -> FolderIndex:
        """A copy, to be written in another thread."""
        return replace(self, known=dict(self.known), doubtful=set(self.doubtful))

    def begin(self, keys: Iterable[str]) -> None:
        """These keys may be sent from now on."""
        self.doubtful |= self.known.keys() & set(keys)
        self.is_written &= not self.doubtful

    def end(self, keys: Iterable[str]) -> None:
        self.is_written &= not self.doubtful
        self.doubtful -= set(keys)

    def entry(self, key: str) -> list[int | str | bool]:
        """The entry of a key in the index file."""
        known = self.known[key]
        facts, checksum, settled = uncertain(known) if key in self.doubtful else known
        return [*facts, checksum, settled]

    def sent(self, key: str, known: Known) -> None:
        self.known[key] = known
        self.is_written = False

    def doubt(self, keys: Iterable[str]) -> None:
        """The content of these keys in storage is uncertain from now on."""
        for key in keys:
            if key in self.known and self.known[key].checksum:
                self.sent(key, uncertain(self.known[key]))

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.is_written &= self.known.pop(key, None) is None
            (self.earlier or {}).pop(key.removeprefix(f"{self.name}/"), None)

    def lose(self) -> None:
        """The folder was lost with its index."""
        self.known.clear()
        self.is_written = self.has_file = False

    def check(self, present: Mapping[str, int]) -> None:
        """Compare the index with a listing of the storage."""
        self.doubt(missing_there(self.known, present, self.known))
        self.is_checked = True


class LocalIndex:
    """The index files of one tree, under the claim with the number `epoch`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._epoch = self._since = 0

    def open(self, epoch: int, *, is_continued: bool) -> FolderIndex:
        """Use the claim `epoch` from now on; `is_continued` if this run already has it.

        Returns the index of the experiment's own files. Raises OSError.
        """
        document = _read(self._root / INDEX_NAME)
        last, since = document.get("epoch", 0), document.get("since", 0)
        follows = last == epoch if is_continued else 0 < last == epoch - 1
        self._epoch, self._since = epoch, since if follows else epoch
        index = self.load("")
        # Checking these few files would take a listing of the whole experiment.
        index.doubt(list(index.known))
        index.is_checked = True
        self.save(index)
        return index

    def look_back(self) -> None:
        """Use no claim; trust the last ones that this tree has held."""
        document = _read(self._root / INDEX_NAME)
        self._epoch, self._since = document.get("epoch", 0), document.get("since", 0)

    def load(self, folder: str) -> FolderIndex:
        """The index of a folder; empty if it is damaged, or written under another owner's
        claim."""
        document = _read(self._root / folder / INDEX_NAME)
        if not self._since <= document.get("epoch", 0) <= self._epoch:
            return FolderIndex(folder)
        prefix = f"{folder}/" if folder else ""
        try:
            files = document["files"].items()
            known = {prefix + inner_path(name): _known(entry) for name, entry in files}
            is_listed = bool(document["listed"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return FolderIndex(folder)
        return FolderIndex(folder, known, is_checked=not known, is_listed=is_listed, has_file=True)

    def save(self, index: FolderIndex) -> None:
        """Replace the index file atomically; does nothing if the folder is gone.

        It is not forced to the disk: if a power cut damages it, files are uploaded again. Raises
        OSError.
        """
        target = self._root / index.name / INDEX_NAME
        temporary = target.with_name(f"{TEMPORARY}{unique()}")
        try:
            temporary.write_bytes(self._bytes(index))
            os.replace(temporary, target)
        except FileNotFoundError:
            return
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def _bytes(self, index: FolderIndex) -> bytes:
        start = len(index.name) + 1 if index.name else 0
        files = {key[start:]: index.entry(key) for key in index.known}
        document: dict[str, Any] = {
            "format": _FORMAT,
            "epoch": self._epoch,
            "listed": index.is_listed,
            "files": files,
        }
        if not index.name:
            document["since"] = self._since
        text = json.dumps(document, separators=(",", ":")).encode()
        return b"%08x\n" % zlib.crc32(text) + text


def _read(path: Path) -> dict[str, Any]:
    """The document of an index file; empty if the file is missing or damaged."""
    try:
        checksum, _, text = read_small(path).partition(b"\n")
        if int(checksum, 16) != zlib.crc32(text):
            return {}
        document = parse_json(text)
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        return {}
    numbers = (document.get("epoch", 0), document.get("since", 0))
    return document if all(type(number) is int for number in numbers) else {}


def _known(entry: Any) -> Known:
    size, mtime_ns, ctime_ns, checksum, settled = entry
    facts = FileStat(_number(size), _number(mtime_ns), _number(ctime_ns))
    return Known(facts, str(checksum), bool(settled))


def _number(value: object) -> int:
    """A size, or a time as the kernel accepts it. Raises ValueError."""
    if type(value) is not int or abs(value) >= 1 << 63:
        raise ValueError(f"{shown(value)} is not a size or a time")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One artifact in the listing in storage; the checksum is "" if the file changed while it was
    sent."""

    size: int
    checksum: str
    mtime_ns: int


def listing_bytes(listed: Mapping[str, Listed]) -> bytes:
    """Encode a listing, by the names in the trial's folder."""
    files = {
        name: {"size": one.size, "sha256": one.checksum, "mtime_ns": one.mtime_ns}
        for name, one in sorted(listed.items())
    }
    return json.dumps({"format": _FORMAT, "files": files}, indent=1).encode()


def read_listing(data: bytes) -> dict[str, Listed]:
    """Decode a listing. Raises ValueError if it is not one, or of a newer version."""
    try:
        document = parse_table(data)
        if document["format"] != _FORMAT:
            raise ValueError(
                f"it has format {document['format']}, but this version of holdfast reads {_FORMAT}"
            )
        return {
            inner_path(name): Listed(
                size=_number(one["size"]),
                checksum=str(one["sha256"]),
                mtime_ns=_number(one["mtime_ns"]),
            )
            for name, one in document["files"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is damaged ({error!r})") from error
