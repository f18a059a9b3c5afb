"""Walking the folders of an experiment for the files that are to be persisted.

Here, unlike in a checkpoint, nothing that is found is an error: what cannot be sent is passed
over, with the reason, and everything else goes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Literal

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.orders import Orders
from holdfast.syncer.artifacts.plan import INDEX_NAME, FileStat, FolderScan

Scope = Literal["records", "artifacts"]


def covers(orders: Orders, scope: Scope) -> Callable[[str], bool]:
    """Whether a key belongs to the records, or else to the artifacts."""
    wanted = scope == "records"
    return lambda key: orders.is_record(key) is wanted


def folders(orders: Orders) -> list[str]:
    """The folders of an experiment that have an index each: "", for the files that lie in its own
    folder, and the trials' folders. Raises OSError."""
    with os.scandir(orders.root) as entries:
        found = [
            entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=False)
            and not orders.is_ours(entry.name, is_folder=True)
        ]
    return ["", *sorted(found)]


def scan(orders: Orders, folder: str, scope: Scope) -> FolderScan:
    """The files of one such folder that belong to the scope; records lie at its top only."""
    walk = _Walk(orders, os.fspath(orders.root), folder, scope)
    waiting = [folder]
    while waiting:
        waiting += walk.enter(waiting.pop())
    return FolderScan(
        files=walk.files,
        skipped=walk.skipped,
        is_there=walk.is_there,
        has_index=walk.has_index,
    )


@dataclass(slots=True)
class _Walk:
    """Each publication looks into every trial's folder, of which there may be ten thousand: one
    scandir for each, and what only links and folders below need is asked when one is met."""

    orders: Orders
    root: str
    top: str
    scope: Scope
    files: dict[str, FileStat] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    is_there: bool = True
    has_index: bool = False
    device: int | None = None
    home: str = ""

    def enter(self, folder: str) -> Iterator[str]:
        """Take in one folder; gives those below it that are to be entered."""
        try:
            with os.scandir(f"{self.root}/{folder}") as entries:
                listed = list(entries)
        except OSError as error:
            if folder == self.top and isinstance(error, FileNotFoundError):
                self.is_there = False
            else:
                self.skipped[folder] = f"this folder cannot be read ({reason(error)})"
            return
        above = f"{folder}/" if folder else ""
        if folder == self.top:
            self.has_index = any(entry.name == INDEX_NAME for entry in listed)
        for entry in listed:
            key = above + entry.name
            try:
                if self._take_in(key, entry):
                    yield key
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as error:
                self.skipped[key] = reason(error)

    def _take_in(self, key: str, entry: os.DirEntry[str]) -> bool:
        """Whether it is a folder to be entered."""
        is_folder = entry.is_dir(follow_symlinks=False)
        if not self._is_wanted(key, is_folder) or self.orders.is_ours(key, is_folder=is_folder):
            return False
        if not _is_utf8(entry.name):
            self.skipped[ascii(key)] = "its name is not UTF-8, which names in storage are"
            return False
        facts = entry.stat(follow_symlinks=False)
        if is_folder:
            return self._is_entered(key, facts)
        if stat.S_ISLNK(facts.st_mode):
            target = self._target(key, entry.path)
            if target is None:
                return False
            facts = target
        if stat.S_ISREG(facts.st_mode):
            self.files[key] = facts_of(facts)
        else:
            self.skipped[key] = "it is no regular file (a pipe, socket or device)"
        return False

    def _is_wanted(self, key: str, is_folder: bool) -> bool:
        """The experiment's own folder and the records need no walk into what is below."""
        if self.scope == "records":
            return not is_folder and self.orders.is_record(key)
        if "/" not in key:
            return not is_folder and not self.orders.is_record(key)
        return is_folder or not self.orders.is_record(key)

    def _is_entered(self, key: str, facts: os.stat_result) -> bool:
        """What is mounted there may be gone tomorrow without anybody having removed it."""
        if self.device is None:
            self.device = os.stat(f"{self.root}/{self.top}").st_dev
        if facts.st_dev != self.device:
            self.skipped[key] = "another file system is mounted there"
        return facts.st_dev == self.device

    def _target(self, key: str, path: str) -> os.stat_result | None:
        """What a link to a file of the same trial leads to.

        What lies elsewhere is not the trial's: links to data sets would send those. The content
        of a folder inside is found under its own name.
        """
        try:
            target = os.path.realpath(path, strict=True)
            facts = os.stat(target)
        except OSError:
            self.skipped[key] = f"this link leads nowhere ({os.readlink(path)!r})"
            return None
        if not self.home:
            self.home = os.path.realpath(f"{self.root}/{self.top}")
        if os.path.commonpath([target, self.home]) != self.home:
            self.skipped[key] = f"this link leads out of the trial's folder, to {target!r}"
            return None
        return None if stat.S_ISDIR(facts.st_mode) else facts


def facts_of(facts: os.stat_result) -> FileStat:
    return FileStat(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def reason(error: OSError) -> str:
    """In a few words, without the name of the file."""
    return (error.strerror or str(error)).lower()


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
