"""Walks the folders of an experiment for files to upload, and reads files that may be changing.

Unlike in a checkpoint, nothing here is an error: files that cannot be sent are skipped with a
reason, and all others are sent.

Only a state that a file really had is sent. A file is read, and its times are compared before and
after. If they differ, it is being written, and is read again: bytes that are equal both times were
all in the file at the moment between the two. This is how a growing log is sent, as far as it
existed. A file that is being overwritten gives different bytes, and is held back until it stops
changing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Literal

from holdfast.dataclass import dataclass
from holdfast.names import is_utf8
from holdfast.syncer.artifacts.settings import INDEX_NAME, FileStat, FolderScan, UploaderSettings
from holdfast.syncer.files.durable import TEMPORARY, copy_bytes, opened, unique
from holdfast.syncer.files.tree import NotRegular

Scope = Literal["records", "artifacts"]


def covers(settings: UploaderSettings, scope: Scope) -> Callable[[str], bool]:
    """A predicate of keys: those of the records, or else those of the artifacts."""
    wanted = scope == "records"
    return lambda key: settings.is_record(key) is wanted


def all_folders(settings: UploaderSettings) -> list[str]:
    """The folders with an index each: "", for the experiment's own files, and the trials' folders.

    Raises OSError.
    """
    with os.scandir(settings.root) as entries:
        found = [
            entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=False)
            and not settings.is_ours(entry.name, is_folder=True)
        ]
    return ["", *sorted(found)]


def scan(settings: UploaderSettings, folder: str, scope: Scope) -> FolderScan:
    """The files of a folder that belong to the scope; records are only at its top level."""
    walk = _Walk(settings, os.fspath(settings.root), folder, scope)
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
    """One walk. Each publication scans every trial's folder, of which there may be ten thousand.

    So it makes one scandir per folder; further calls happen only for links and subfolders.
    """

    settings: UploaderSettings
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
        """Scan one folder; yield its subfolders to scan."""
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
                if self._add(key, entry):
                    yield key
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as error:
                self.skipped[key] = reason(error)

    def _add(self, key: str, entry: os.DirEntry[str]) -> bool:
        """Add a file; return whether the entry is a folder to scan."""
        is_folder = entry.is_dir(follow_symlinks=False)
        if not self._is_wanted(key, is_folder) or self.settings.is_ours(key, is_folder=is_folder):
            return False
        if not is_utf8(entry.name):
            self.skipped[ascii(key)] = "its name is not UTF-8, which storage requires"
            return False
        facts = entry.stat(follow_symlinks=False)
        if is_folder:
            return self._may_enter(key, facts)
        if stat.S_ISLNK(facts.st_mode):
            target = self._target(key, entry.path)
            if target is None:
                return False
            facts = target
        if stat.S_ISREG(facts.st_mode):
            self.files[key] = file_stat(facts)
        else:
            self.skipped[key] = "it is not a regular file (a pipe, socket or device)"
        return False

    def _is_wanted(self, key: str, is_folder: bool) -> bool:
        """Whether the entry belongs to the scope; the top folder and the records need no
        subfolders."""
        if self.scope == "records":
            return not is_folder and self.settings.is_record(key)
        if "/" not in key:
            return not is_folder and not self.settings.is_record(key)
        return is_folder or not self.settings.is_record(key)

    def _may_enter(self, key: str, facts: os.stat_result) -> bool:
        """Whether to scan a folder: not a mounted one, whose files may vanish without being
        removed."""
        if self.device is None:
            self.device = os.stat(f"{self.root}/{self.top}").st_dev
        if facts.st_dev != self.device:
            self.skipped[key] = "another file system is mounted there"
        return facts.st_dev == self.device

    def _target(self, key: str, path: str) -> os.stat_result | None:
        """The target of a link to a file of the same trial.

        Files elsewhere do not belong to the trial: links to data sets would upload those. The
        files of a linked folder inside the trial's are found under their own names.
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


def file_stat(found: os.stat_result) -> FileStat:
    return FileStat(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def reason(error: OSError) -> str:
    """A short reason, without the name of the file."""
    return (error.strerror or str(error)).lower()


# Up to this size a file is read into memory, so that the hashed bytes are those sent.
SMALL_BYTES = 4 << 20
_ATTEMPTS = 3
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StableRead:
    """A state that a file had: `source` is its bytes, the file itself, or a copy of it.

    `stat` has the size of the content to send. `is_settled`: a later change would change the
    times.
    """

    source: bytes | Path
    checksum: str
    stat: FileStat
    is_settled: bool
    is_copy: bool = False

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self.is_copy and isinstance(self.source, Path):
            self.source.unlink(missing_ok=True)


def read_stable(path: Path, *, copies: Path, small_bytes: int = SMALL_BYTES) -> StableRead | None:
    """A state of the file; None if it is being overwritten, or if there is no space for a copy.

    `copies` is a folder on the same disk, for the copy of a large file that grows. For a large
    file that did not change while it was hashed, `source` is the file itself: call `is_unchanged`
    after sending it. Raises OSError.
    """
    with opened(path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotRegular("it is not a regular file")
        if found.st_size > small_bytes:
            return _read_large(descriptor, path, copies)
        return _read_small(descriptor)


def is_unchanged(path: Path, known: FileStat) -> bool:
    """True if the file is unchanged."""
    try:
        return file_stat(os.stat(path)) == known
    except OSError:
        return False


def _read_small(descriptor: int) -> StableRead | None:
    for _ in range(_ATTEMPTS):
        before = file_stat(os.fstat(descriptor))
        data = os.pread(descriptor, before.size, 0)
        after = file_stat(os.fstat(descriptor))
        is_still = before == after
        if len(data) == before.size and (is_still or os.pread(descriptor, before.size, 0) == data):
            return StableRead(
                source=data,
                checksum=hashlib.sha256(data).hexdigest(),
                stat=before,
                is_settled=is_still and before.is_settled(time.time_ns()),
            )
    return None


def _read_large(descriptor: int, path: Path, copies: Path) -> StableRead | None:
    before = file_stat(os.fstat(descriptor))
    checksum = _hash(descriptor, before.size)
    if checksum is not None and file_stat(os.fstat(descriptor)) == before:
        settled = before.is_settled(time.time_ns())
        return StableRead(source=path, checksum=checksum, stat=before, is_settled=settled)
    return _read_copy(descriptor, copies)


def _read_copy(descriptor: int, copies: Path) -> StableRead | None:
    before = file_stat(os.fstat(descriptor))
    if shutil.disk_usage(copies).free < 2 * before.size:
        return None  # leave the space to the journal
    copy = copies / f"{TEMPORARY}{unique()}"
    try:
        target = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            size = copy_bytes(descriptor, target, before.size)
            checksum = _hash(target, size)
        finally:
            os.close(target)
        if checksum is None or _hash(descriptor, size) != checksum:
            copy.unlink()
            return None
    except BaseException:
        with suppress(OSError):
            copy.unlink(missing_ok=True)
        raise
    known = before._replace(size=size)
    return StableRead(source=copy, checksum=checksum, stat=known, is_settled=False, is_copy=True)


def _hash(descriptor: int, size: int) -> str | None:
    """The SHA-256 of the first `size` bytes; None if there are fewer."""
    digest = hashlib.sha256(usedforsecurity=False)
    at = 0
    while at < size:
        data = os.pread(descriptor, min(size - at, _BUFFER_BYTES), at)
        if not data:
            return None
        digest.update(data)
        at += len(data)
    return digest.hexdigest()


def checksum_of(path: Path) -> str:
    """The SHA-256 of a file that no process writes. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        return _hash(file.fileno(), os.fstat(file.fileno()).st_size) or ""
