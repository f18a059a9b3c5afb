"""A store in a local directory: temp file, fsync, rename; create-only puts by hard link."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from holdfast.syncer.durable import TEMPORARY, fsync_dir, fsync_file, is_leftover, unique
from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageError,
    from_os_error,
)
from holdfast.syncer.staging import copy_bytes
from holdfast.syncer.store import (
    Entry,
    Stored,
    check_key,
    deletion_failure,
    folder_prefix,
)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Objects as files below `root`, which is made by the first put."""

    root: Path

    @property
    def where(self) -> str:
        return str(self.root)

    @property
    def conditional_puts(self) -> bool:
        return True

    async def put(self, key: str, source: bytes | Path, *, create_only: bool = False) -> Stored:
        return await self._call("put", key, self._put, check_key(key), source, create_only)

    async def get(self, key: str, target: Path) -> int:
        return await self._call("get", key, self._get, check_key(key), target)

    async def read(self, key: str) -> bytes:
        return await self._call("read", key, (self.root / check_key(key)).read_bytes)

    async def list(self, prefix: str = "") -> list[Entry]:
        return [*await self._call("list", prefix, self._list, folder_prefix(prefix))]

    async def head(self, key: str) -> Entry | None:
        return await self._call("head", key, self._head, check_key(key))

    async def delete(self, keys: Iterable[str]) -> None:
        await self._call("delete", "", self._delete, [check_key(key) for key in keys])

    async def close(self) -> None:
        """Nothing is held open."""

    async def _call(
        self,
        operation: str,
        key: str,
        perform: Callable[P, R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        import anyio.to_thread

        where = f"{self.root}/{key}" if key else str(self.root)
        try:
            return await anyio.to_thread.run_sync(lambda: perform(*args, **kwargs))
        except StorageError as error:
            raise error.during(operation, where) from error
        except IsADirectoryError as error:
            raise NotStored(operation, where, "this is a folder") from error
        except OSError as error:
            raise from_os_error(error, operation, where) from error

    def _put(self, key: str, source: bytes | Path, create_only: bool) -> Stored:
        target = self.root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f"{TEMPORARY}{unique()}"
        try:
            size = _write(temporary, source, durable=True)
            _publish(temporary, target, create_only=create_only)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_dir(target.parent)
        return Stored(size=size)

    def _get(self, key: str, target: Path) -> int:
        temporary = target.parent / f"{TEMPORARY}{unique()}"
        try:
            size = _write(temporary, self.root / key, durable=False)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        return size

    def _list(self, prefix: str) -> Sequence[Entry]:
        top = self.root / prefix
        found = []
        for folder, _, names in os.walk(top, onerror=_raise_unless_missing):
            for name in names:
                path = os.path.join(folder, name)
                if not is_leftover(name) and os.path.isfile(path):
                    found.append(_entry(os.path.relpath(path, self.root), os.stat(path)))
        return sorted(found, key=lambda entry: entry.key)

    def _head(self, key: str) -> Entry | None:
        try:
            facts = os.stat(self.root / key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _entry(key, facts) if stat.S_ISREG(facts.st_mode) else None

    def _delete(self, keys: Sequence[str]) -> None:
        failures: dict[str, StorageError] = {}
        for key in keys:
            try:
                (self.root / key).unlink(missing_ok=True)
            except NotADirectoryError:
                continue
            except OSError as error:
                failures[key] = from_os_error(error, "delete", key)
        for folder in sorted({(self.root / key).parent for key in keys}, reverse=True):
            self._prune(folder)
        if failures:
            raise deletion_failure(str(self.root), failures)

    def _prune(self, folder: Path) -> None:
        """Remove folders that the deletion left empty; rmdir refuses any other."""
        while self.root in folder.parents:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _entry(key: str, facts: os.stat_result) -> Entry:
    return Entry(key=key, size=facts.st_size, modified=facts.st_mtime)


def _write(path: Path, source: bytes | Path, *, durable: bool) -> int:
    with open(path, "xb", buffering=0) as file:
        if isinstance(source, bytes):
            view = memoryview(source)
            while view:
                view = view[file.write(view) :]
        else:
            with open(source, "rb", buffering=0) as original:
                size = os.fstat(original.fileno()).st_size
                copy_bytes(original.fileno(), file.fileno(), size)
        if durable:
            fsync_file(file.fileno())
        return os.fstat(file.fileno()).st_size


def _publish(temporary: Path, target: Path, *, create_only: bool) -> None:
    if not create_only:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)
    except FileExistsError as error:
        raise AlreadyStored("put", str(target), "there is such an object already") from error
