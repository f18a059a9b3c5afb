"""A store in a local directory: a temporary file, an fsync, a rename; create-only puts use a hard
link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO, ClassVar, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageError,
    StorageRefused,
    from_os_error,
)
from holdfast.syncer.files.durable import (
    TEMPORARY,
    copy_bytes,
    fsync_dir,
    fsync_file,
    is_leftover,
    make_folder,
    new_file_for,
    unique,
    write_all,
)
from holdfast.syncer.files.tree import open_regular
from holdfast.syncer.stores.store import (
    FOLDER_ATTEMPTS,
    ObjectInfo,
    PutResult,
    PutsAtOnce,
    check_key,
    deletion_failure,
    folder_prefix,
    prune,
)
from holdfast.trees import Mounted, mounts_below

R = TypeVar("R")

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True, slots=True)
class LocalStore(PutsAtOnce):
    """Objects as files below `root`, which the first put creates."""

    root: Path
    has_folders: ClassVar[bool] = True
    conditional_puts: ClassVar[bool] = True

    @property
    def where(self) -> str:
        return str(self.root)

    async def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        create_only: bool = False,
        resumable: bool = False,
    ) -> PutResult:
        return await self._call("put", key, lambda: self._put(check_key(key), source, create_only))

    async def copy(self, source: ObjectInfo, key: str) -> PutResult:
        """Copy inside the kernel, by sharing blocks if the file system can. Not by a hard link:
        a change of one checkpoint in place must not change another."""
        original = check_key(source.key)
        return await self._call("copy", key, lambda: self._copy(original, check_key(key)))

    async def get(self, key: str, target: Path) -> int:
        return await self._call("get", key, lambda: self._get(check_key(key), target))

    async def read(self, key: str) -> bytes:
        return await self._call("read", key, lambda: self._read(check_key(key)))

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        found = await self._call("list", prefix, lambda: self._list(folder_prefix(prefix)))
        return [entry for entry in found if leftovers or not is_leftover(entry.name)]

    async def head(self, key: str) -> ObjectInfo | None:
        return await self._call("head", key, lambda: self._head(check_key(key)))

    async def delete(self, keys: Iterable[str]) -> None:
        wanted = [check_key(key) for key in keys]
        await self._call("delete", "", lambda: self._delete(wanted))

    async def close(self) -> None:
        """Does nothing: the store keeps nothing open."""

    async def _call(self, operation: str, key: str, perform: Callable[[], R]) -> R:
        import anyio.to_thread

        where = f"{self.root}/{key}" if key else str(self.root)
        try:
            return await anyio.to_thread.run_sync(perform)
        except StorageError as error:
            raise error.during(operation, where) from error
        except OSError as error:
            raise from_os_error(error, operation, where) from error

    def _path(self, key: str) -> Path:
        """The path of a key. Raises OSError if a folder in it is a link, which may lead out of the
        store."""
        folder = str(self.root)
        for name in key.split("/")[:-1]:
            folder = f"{folder}/{name}"
            if os.path.islink(folder):
                raise OSError(errno.ELOOP, "a symbolic link, which is not followed", folder)
        return self.root / key

    def _copy(self, source: str, key: str) -> PutResult:
        with self._open_object(source) as original:
            return self._put(key, original, False)

    def _put(self, key: str, source: bytes | Path | BinaryIO, create_only: bool) -> PutResult:
        target = self._path(key)
        temporary = target.parent / f"{TEMPORARY}{unique()}"
        file = _create_file(temporary)
        try:
            with file:
                size = _write(file, source)
                fsync_file(file.fileno(), size)
            _publish(temporary, target, create_only=create_only)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_dir(target.parent)
        return PutResult(size=size)

    def _get(self, key: str, target: Path) -> int:
        with self._open_object(key) as source, new_file_for(target) as file:
            return _write(file, source)

    def _read(self, key: str) -> bytes:
        with self._open_object(key) as source:
            return source.read()

    def _open_object(self, key: str) -> BinaryIO:
        try:
            return open_regular(self._path(key))
        except IsADirectoryError as error:
            raise NotStored("read", key, "this is a folder") from error

    def _list(self, prefix: str) -> Sequence[ObjectInfo]:
        found = map(self._entry, self._keys(prefix))
        return sorted((entry for entry in found if entry), key=lambda entry: entry.key)

    def _keys(self, prefix: str) -> Iterator[str]:
        for folder, _, names in os.walk(self._path(prefix), onerror=_raise_unless_missing):
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.root)

    def _head(self, key: str) -> ObjectInfo | None:
        self._path(key)
        return self._entry(key)

    def _entry(self, key: str) -> ObjectInfo | None:
        try:
            facts = os.stat(self.root / key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(facts.st_mode):
            return None
        return ObjectInfo(key=key, size=facts.st_size, modified=facts.st_mtime)

    def _delete(self, keys: Sequence[str]) -> None:
        failures: dict[str, StorageError] = {}
        folders: set[str] = set()
        root = Path(os.path.realpath(self.root))
        mounts = [mount for mount in mounts_below(str(root)) if mount != str(root)]
        for key in keys:
            try:
                path = self._path(key)
                for mount in mounts:
                    if (root / key).is_relative_to(mount):
                        raise Mounted(mount)
                folders.add(str(path.parent))
                path.unlink(missing_ok=True)
            except NotADirectoryError:
                continue
            except OSError as error:
                failures[key] = from_os_error(error, "delete", key)
        prune(folders, str(self.root), os.rmdir)
        if failures:
            raise deletion_failure(str(self.root), failures)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _create_file(path: Path) -> FileIO:
    """Create a file and its folders. A simultaneous deletion may remove the folders again."""
    for _ in range(FOLDER_ATTEMPTS):
        with suppress(FileNotFoundError, FileExistsError):
            if not path.parent.exists():
                make_folder(path.parent)
            return open(path, "xb", buffering=0)
    return open(path, "xb", buffering=0)


def _write(file: FileIO, source: bytes | Path | BinaryIO) -> int:
    if isinstance(source, bytes):
        write_all(file.fileno(), source)
        return len(source)
    if isinstance(source, Path):
        with open(source, "rb", buffering=0) as original:
            return _write(file, original)
    size = os.fstat(source.fileno()).st_size
    return copy_bytes(source.fileno(), file.fileno(), size)


def _publish(temporary: Path, target: Path, *, create_only: bool) -> None:
    if not create_only:
        os.replace(temporary, target)
        return
    try:
        _create(temporary, target)
    except FileExistsError as error:
        if not _is_object(target):
            cause = "it exists and is not a regular file"
            raise StorageRefused("put", str(target), cause, "Remove it") from error
        raise AlreadyStored("put", str(target), "there is such an object already") from error


def _is_object(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:  # it was an object that has just been removed
        return True


def _create(temporary: Path, target: Path) -> None:
    """Create the target; only one of several writers succeeds. Without hard links, as on FAT and
    most file systems over object stores, readers may see an empty file for a moment."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        os.replace(temporary, target)
