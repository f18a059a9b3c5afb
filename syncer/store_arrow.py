"""A store over any pyarrow filesystem, those that wrap fsspec included.

Blocking calls run in threads. `pyarrow.fs.copy_files` is not used: from pyarrow 19 to 26 it
reports success when a part of an upload was refused and no object exists. Streams raise; the size
of what they stored is looked at all the same.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from holdfast.syncer.durable import TEMPORARY, is_leftover, unique
from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    from_os_error,
    redact,
)
from holdfast.syncer.store import (
    Entry,
    Stored,
    allowance_s,
    check_key,
    deletion_failure,
    folder_prefix,
    for_each,
    source_size,
)

R = TypeVar("R")

_THREADS = 16
_CHUNK_BYTES = 4 << 20
_LOOKUP_S = 60.0
# Where a rename is one cheap step, readers never see a half written object.
_RENAMES_CHEAPLY = re.compile(r"local|hdfs|viewfs|py::fsspec\+.*\b(file|local|sftp|ssh|smb)\b.*")
_NO_ACCESS = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY|InvalidAccessKey|SIGNATURE_DOES_NOT_MATCH"
    r"|SignatureDoesNotMatch|NoCredentials|Forbidden|\b(401|403)\b"
)
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|[Bb]ucket .*(does not|doesn't) exist")

_CHECK_CREDENTIALS = "Check the credentials and that they may read, write, list and delete there"


class ArrowStore:
    """Objects below `root` in a pyarrow filesystem."""

    def __init__(self, filesystem: Any, root: str, *, where: str = "") -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._where = redact(where) or f"{filesystem.type_name}:{self._root}"
        self._renames = _RENAMES_CHEAPLY.fullmatch(filesystem.type_name) is not None
        self._fsspec = _wrapped_fsspec(filesystem)
        self._limiter: Any = None

    @property
    def where(self) -> str:
        return self._where

    @property
    def conditional_puts(self) -> bool:
        return False

    async def put(self, key: str, source: bytes | Path, *, create_only: bool = False) -> Stored:
        path = self._path(key)
        if create_only and await self.head(key) is not None:
            raise AlreadyStored("put", self._shown(key), "there is such an object already")
        size = await self._call("put", key, lambda: source_size(source))
        write = self._write_and_rename if self._renames else self._write
        await self._call("put", key, lambda: write(path, source), allowance_s(size))
        stored = await self._call("put", key, lambda: self._info(path))
        if stored is None or stored.size != size:
            found = "no such object" if stored is None else f"{stored.size} bytes"
            raise StorageUnavailable(
                "put", self._shown(key), f"{size} bytes were written and the store has {found}"
            )
        return Stored(size=size)

    async def get(self, key: str, target: Path) -> int:
        path = self._path(key)
        entry = await self.head(key)
        if entry is None:
            raise NotStored("get", self._shown(key), "there is no such object")
        size = await self._call(
            "get", key, lambda: self._download(path, target, entry.size), allowance_s(entry.size)
        )
        return size

    async def read(self, key: str) -> bytes:
        path = self._path(key)
        return await self._call("read", key, lambda: self._read(path))

    async def list(self, prefix: str = "") -> list[Entry]:
        folder = f"{self._root}/{folder_prefix(prefix)}".rstrip("/")
        return [*await self._call("list", prefix, lambda: self._list(folder))]

    async def head(self, key: str) -> Entry | None:
        path = self._path(key)
        info = await self._call("head", key, lambda: self._info(path))
        return None if info is None else self._entry(info)

    async def delete(self, keys: Iterable[str]) -> None:
        failures: dict[str, StorageError] = {}

        async def delete_one(key: str) -> None:
            path = self._path(key)
            try:
                await self._call("delete", key, lambda: self._delete(path))
            except NotStored:
                return
            except StorageError as error:
                # Drivers answer with many kinds of error for what is not there.
                if await self.head(key) is not None:
                    failures[key] = error

        await for_each(delete_one, keys, at_once=_THREADS)
        if failures:
            raise deletion_failure(self._where, failures)

    async def close(self) -> None:
        """The filesystem belongs to the location; nothing of ours is open."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _shown(self, key: str) -> str:
        return f"{self._where} ({key})" if "?" in self._where else f"{self._where}/{key}"

    async def _call(
        self, operation: str, key: str, perform: Callable[[], R], deadline_s: float = _LOOKUP_S
    ) -> R:
        import anyio
        import anyio.to_thread

        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_THREADS)
        try:
            async with asyncio.timeout(deadline_s):
                # pyarrow's calls cannot be interrupted: past the deadline the thread is left.
                return await anyio.to_thread.run_sync(
                    perform, abandon_on_cancel=True, limiter=self._limiter
                )
        except Exception as error:  # a filesystem raises what its driver does; the caller is told
            raise self._translated(error, operation, key) from error

    def _translated(self, error: Exception, operation: str, key: str) -> StorageError:
        where = self._shown(key) if key else self._where
        text = redact(f"{type(error).__name__}: {error}")
        if isinstance(error, StorageError):
            return error.during(operation, where)
        if isinstance(error, TimeoutError):
            return StorageUnavailable(operation, where, "no answer within the deadline")
        if _NO_BUCKET.search(text):
            return StorageRefused(operation, where, text, "Create the bucket, or correct its name")
        if isinstance(error, FileNotFoundError):
            return NotStored(operation, where, text)
        if isinstance(error, PermissionError) or _NO_ACCESS.search(text):
            return StorageRefused(operation, where, text, _CHECK_CREDENTIALS)
        if isinstance(error, OSError) and error.errno is not None:
            return from_os_error(error, operation, where)
        return StorageUnavailable(operation, where, text)

    def _write_and_rename(self, path: str, source: bytes | Path) -> None:
        folder = path.rpartition("/")[0]
        temporary = f"{folder}/{TEMPORARY}{unique()}"
        try:
            self._write(temporary, source)
            self._fs.move(temporary, path)
        except BaseException:
            if self._info(temporary) is not None:
                self._fs.delete_file(temporary)
            raise

    def _write(self, path: str, source: bytes | Path) -> None:
        try:
            stream = self._open_for_writing(path)
        except FileNotFoundError:
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)
            stream = self._open_for_writing(path)
        with stream:
            if isinstance(source, bytes):
                stream.write(source)
                return
            with open(source, "rb", buffering=0) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    stream.write(chunk)

    def _open_for_writing(self, path: str) -> Any:
        # pyarrow's default would gzip whatever is named *.gz.
        return self._fs.open_output_stream(path, compression=None)

    def _read(self, path: str) -> bytes:
        with self._fs.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())

    def _download(self, path: str, target: Path, size: int) -> int:
        temporary = target.parent / f"{TEMPORARY}{unique()}"
        got = 0
        try:
            with (
                self._fs.open_input_stream(path, compression=None) as stream,
                open(temporary, "xb", buffering=0) as file,
            ):
                while chunk := stream.read(_CHUNK_BYTES):
                    file.write(chunk)
                    got += len(chunk)
            if got != size:
                raise StorageUnavailable("get", path, f"{got} of {size} bytes came")
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        return got

    def _delete(self, path: str) -> None:
        # fsspec's `rm`, which pyarrow would call, takes a * or [1] in a name for a pattern, and
        # deletes whatever matches.
        if self._fsspec is not None:
            self._fsspec.rm_file(path)
        else:
            self._fs.delete_file(path)

    def _info(self, path: str) -> Any:
        import pyarrow.fs as arrow_fs

        self._forget_listings()
        info = self._fs.get_file_info(path)
        return info if info.type is arrow_fs.FileType.File else None

    def _list(self, folder: str) -> Sequence[Entry]:
        import pyarrow.fs as arrow_fs

        self._forget_listings()
        selector = arrow_fs.FileSelector(folder, allow_not_found=True, recursive=True)
        try:
            infos = self._fs.get_file_info(selector)
        except NotADirectoryError:
            return []
        files = (info for info in infos if info.type is arrow_fs.FileType.File)
        entries = (self._entry(info) for info in files if not is_leftover(info.base_name))
        return sorted(entries, key=lambda entry: entry.key)

    def _forget_listings(self) -> None:
        """fsspec filesystems remember listings; another process may have written since."""
        if self._fsspec is not None:
            self._fsspec.invalidate_cache()

    def _entry(self, info: Any) -> Entry:
        root = self._root.strip("/")
        key = info.path.strip("/").removeprefix(root).lstrip("/")
        modified = None if info.mtime is None else info.mtime.timestamp()
        return Entry(key=key, size=info.size, modified=modified)


def _wrapped_fsspec(filesystem: Any) -> Any:
    import pyarrow.fs as arrow_fs

    handler = getattr(filesystem, "handler", None)
    return handler.fs if isinstance(handler, arrow_fs.FSSpecHandler) else None
