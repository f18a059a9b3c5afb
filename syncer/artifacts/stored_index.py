"""The index of a folder's files in storage: a file in the folder itself, and whether it is valid.

It is invalid once another machine has owned the storage, because that may have changed everything.
So each index names the claim under which it was written, and the index of the experiment's own
folder names the range of consecutive claims that this tree has held.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.names import inner_path, shown
from holdfast.syncer.artifacts.settings import (
    INDEX_NAME,
    FileStat,
    StoredFile,
    missing_in_storage,
    uncertain,
)
from holdfast.syncer.files.durable import TEMPORARY, remove_file, replace_file
from holdfast.syncer.stores.owned_store import Claim
from holdfast.syncer.stores.store import parse_json, parse_table, read_small

_FORMAT = 1
# The number in the name of the temporary file: nobody else writes one of this name.
_NUMBER = f"{1:016x}"


@dataclass(slots=True)
class FolderIndex:
    """The files in storage of the folder `name` ("" for the experiment's own files), by key.

    `is_checked`: files that an earlier process sent were looked up in storage. `is_listed`: the
    listing in storage has all artifacts. `is_saved`: the local index file is up to date.
    `has_file`: the index file exists, or did before the folder was lost. `being_sent` are keys
    that may be sent now: after a crash they are uncertain to a reader of the file.
    `listed_elsewhere` has the files that only the storage's listing names, None until it is read.
    `is_elsewhere`: the trial ran on another machine later, which sent its output and artifacts;
    those here are older.
    """

    name: str
    stored: dict[str, StoredFile] = field(default_factory=dict)
    is_checked: bool = True
    is_listed: bool = True
    is_saved: bool = True
    has_file: bool = False
    being_sent: set[str] = field(default_factory=set)
    listed_elsewhere: dict[str, ListedFile] | None = None
    is_elsewhere: bool = False

    def copy(self) -> FolderIndex:
        """A copy, to be written in another thread."""
        return replace(self, stored=dict(self.stored), being_sent=set(self.being_sent))

    def begin_sending(self, keys: Iterable[str]) -> None:
        """These keys may be sent from now on."""
        self.being_sent |= self.stored.keys() & set(keys)
        self.is_saved &= not self.being_sent

    def end_sending(self, keys: Iterable[str]) -> None:
        self.is_saved &= not self.being_sent
        self.being_sent -= set(keys)

    def entry(self, key: str) -> list[int | str | bool]:
        """The entry of a key in the index file."""
        file = self.stored[key]
        stat, checksum, is_settled = uncertain(file) if key in self.being_sent else file
        return [*stat, checksum, is_settled]

    def record(self, key: str, file: StoredFile) -> None:
        """Storage has this file now."""
        self.stored[key] = file
        self.is_saved = False

    def mark_uncertain(self, keys: Iterable[str]) -> None:
        """The content of these keys in storage is uncertain from now on."""
        for key in keys:
            if key in self.stored and self.stored[key].checksum:
                self.record(key, uncertain(self.stored[key]))

    def remove(self, keys: Iterable[str]) -> None:
        """Storage no longer has these keys."""
        for key in keys:
            self.is_saved &= self.stored.pop(key, None) is None
            (self.listed_elsewhere or {}).pop(key.removeprefix(f"{self.name}/"), None)

    def clear(self) -> None:
        """The folder was lost with its index."""
        self.stored.clear()
        self.is_saved = self.has_file = False

    def give_away(self, keeps: Callable[[str], bool]) -> None:
        """Another machine sends the files from now on, except those that this one `keeps`."""
        self.stored = {key: file for key, file in self.stored.items() if keeps(key)}
        self.is_elsewhere, self.is_saved = True, False

    def compare(self, sizes: Mapping[str, int]) -> None:
        """Mark files as uncertain that a listing of the storage, with `sizes`, does not have."""
        self.mark_uncertain(missing_in_storage(self.stored, sizes, self.stored))
        self.is_checked = True


class LocalIndex:
    """The index files of one tree, under one claim. They store its number as `epoch`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._number = self._since = 0

    def open(self, claim: Claim, *, is_continued: bool) -> FolderIndex:
        """Use this claim from now on; `is_continued` if this incarnation already has it.

        Returns the index of the experiment's own files. Raises OSError.
        """
        document = _read(self._root / INDEX_NAME)
        last, since = document.get("epoch", 0), document.get("since", 0)
        number = claim.number
        follows = last == number if is_continued else 0 < last == number - 1
        self._number, self._since = number, since if follows else number
        index = self.load("")
        # Checking these few files would take a listing of the whole experiment.
        index.mark_uncertain(list(index.stored))
        index.is_checked = True
        self.save(index)
        return index

    def open_read_only(self) -> None:
        """Use no claim; trust the last ones that this tree has held."""
        document = _read(self._root / INDEX_NAME)
        self._number, self._since = document.get("epoch", 0), document.get("since", 0)

    @property
    def since(self) -> int:
        """The first of the consecutive claims that this tree has held."""
        return self._since

    def load(self, folder: str) -> FolderIndex:
        """The index of a folder; empty if it is damaged, or written under another owner's
        claim."""
        document = _read(self._root / folder / INDEX_NAME)
        if not self._since <= document.get("epoch", 0) <= self._number:
            return FolderIndex(folder)
        prefix = f"{folder}/" if folder else ""
        try:
            files = document["files"].items()
            stored = {prefix + inner_path(name): _stored_file(entry) for name, entry in files}
            is_listed = bool(document["listed"])
            is_elsewhere = bool(document.get("elsewhere"))
        except (KeyError, TypeError, ValueError, AttributeError):
            return FolderIndex(folder)
        return FolderIndex(
            folder,
            stored,
            is_checked=not stored,
            is_listed=is_listed,
            has_file=True,
            is_elsewhere=is_elsewhere,
        )

    def save(self, index: FolderIndex) -> None:
        """Replace the index file atomically; does nothing if the folder is gone.

        It is not forced to the disk: if a power cut damages it, files are uploaded again. Raises
        OSError.
        """
        self.remove_leftover(index.name)
        with suppress(FileNotFoundError):
            path = self._root / index.name / INDEX_NAME
            replace_file(path, self._bytes(index), number=_NUMBER)

    def remove_leftover(self, folder: str) -> None:
        """Remove what a `save` leaves that was cut off. Raises OSError."""
        with suppress(NotADirectoryError):
            remove_file(self._root / folder / f"{TEMPORARY}{_NUMBER}")

    def _bytes(self, index: FolderIndex) -> bytes:
        start = len(index.name) + 1 if index.name else 0
        files = {key[start:]: index.entry(key) for key in index.stored}
        document: dict[str, Any] = {
            "format": _FORMAT,
            "epoch": self._number,
            "listed": index.is_listed,
            "files": files,
        }
        if index.is_elsewhere:
            document["elsewhere"] = True
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


def _stored_file(entry: Any) -> StoredFile:
    size, mtime_ns, ctime_ns, checksum, is_settled = entry
    stat = FileStat(_number(size), _number(mtime_ns), _number(ctime_ns))
    return StoredFile(stat, str(checksum), bool(is_settled))


def _number(value: object) -> int:
    """A size, or a time as the kernel accepts it. Raises ValueError."""
    if type(value) is not int or abs(value) >= 1 << 63:
        raise ValueError(f"{shown(value)} is not a size or a time")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """One artifact in the listing in storage; the checksum is "" if the file changed while it was
    sent."""

    size: int
    checksum: str
    mtime_ns: int


def listing_bytes(listed: Mapping[str, ListedFile]) -> bytes:
    """Encode a listing, by the names in the trial's folder."""
    files = {
        name: {"size": one.size, "sha256": one.checksum, "mtime_ns": one.mtime_ns}
        for name, one in sorted(listed.items())
    }
    return json.dumps({"format": _FORMAT, "files": files}, indent=1).encode()


def read_listing(data: bytes) -> dict[str, ListedFile]:
    """Decode a listing. Raises ValueError if it is not one, or of a newer version."""
    try:
        document = parse_table(data)
        if document["format"] != _FORMAT:
            raise ValueError(
                f"it has format {document['format']}, but this version of holdfast reads {_FORMAT}"
            )
        return {
            inner_path(name): ListedFile(
                size=_number(one["size"]),
                checksum=str(one["sha256"]),
                mtime_ns=_number(one["mtime_ns"]),
            )
            for name, one in document["files"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is damaged ({error!r})") from error
