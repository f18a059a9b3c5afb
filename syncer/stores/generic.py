"""A store over any pyarrow or fsspec filesystem.

Blocking calls run in threads. `pyarrow.fs.copy_files` is not used: in pyarrow 19 to 26 it reports
success if a part of an upload was refused and no object exists. Streams raise an error then, and
the size of each object is checked as well.

An fsspec filesystem that has coroutines and its own loop, such as s3fs, puts small objects and
lists folders itself. pyarrow's wrapper opens a Python file for each object, checks it afterwards,
and lists each folder twice: that took twice as long as `fs.put` for 1,000 files of 4 KiB. If the
answer to a put has the MD5 of the sent bytes as its ETag, that confirms the put; otherwise the
object is checked.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageError,
    StorageUnavailable,
    redact,
)
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import TEMPORARY, is_leftover, unique, write_all
from holdfast.syncer.stores.filesystems import (
    remover_of_empty,
    renames_cheaply,
    translated,
    without_prefix,
    wrapped_fsspec,
)
from holdfast.syncer.stores.retry import moved_to
from holdfast.syncer.stores.store import (
    DOWNLOAD_ATTEMPTS,
    FOLDER_ATTEMPTS,
    LOOKUP_S,
    ObjectInfo,
    PutResult,
    PutsAtOnce,
    allowance_s,
    check_key,
    deletion_failure,
    folder_prefix,
    for_each,
    prune,
    source_size,
)

R = TypeVar("R")

_THREADS = 16
_CHUNK_BYTES = 4 << 20
# Larger objects are streamed, so memory never holds a whole one.
_WHOLE_BYTES = 4 << 20
_SHORTER = "the file became shorter while it was read"


class ArrowStore(PutsAtOnce):
    """Objects below `root` in a pyarrow filesystem."""

    def __init__(self, filesystem: Any, root: str, *, where: str = "") -> None:
        self._fs, path = without_prefix(filesystem, root)
        self._root = path.rstrip("/")
        self.where = redact(where) or f"{filesystem.type_name}:{root.rstrip('/')}"
        # With a cheap rename, readers never see an object that is partly written.
        self._renames = renames_cheaply(self._fs)
        self._remove_empty = remover_of_empty(self._fs)
        self._fsspec = wrapped_fsspec(self._fs)
        self._pipes = not self._renames and _has_coroutines(self._fsspec)
        # fsspec's way to put a new object, which s3fs has (`If-None-Match`), and gcsfs.
        has_mode = self._pipes and "mode" in signature(self._fsspec._pipe_file).parameters
        self._refuses_existing: bool | None = None if has_mode else False
        self.has_folders = self._remove_empty is not None
        self._folder_attempts = FOLDER_ATTEMPTS if self.has_folders else 1
        self._slots = asyncio.Semaphore(_THREADS)
        self._abandoned = AbandonedChanges()

    @property
    def conditional_puts(self) -> bool | None:
        return self._refuses_existing

    async def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        create_only: bool = False,
        resumable: bool = False,
    ) -> PutResult:
        """With `create_only`, the store only looks before it puts a large object."""
        check_key(key)
        size = await self._call("put", key, lambda: source_size(source))
        is_whole = self._pipes and size <= _WHOLE_BYTES
        is_decided_there = create_only and is_whole and self._refuses_existing is not False
        must_look = create_only and not (is_decided_there and self._refuses_existing)
        if must_look and await self.head(key) is not None:
            raise AlreadyStored("put", self._shown(key), "there is such an object already")
        if not is_whole:
            return await self._put_stream(key, source, size)
        stored = await self._put_whole(key, source, size, create_only=is_decided_there)
        if is_decided_there and self._refuses_existing is None:
            self._refuses_existing = await self._refuses_again(key, source, size)
        return stored

    async def _put_stream(self, key: str, source: bytes | Path, size: int) -> PutResult:
        path, write = self._path(key), partial(self._write, source=source)
        put = partial(self._into_place, path, write)
        size = await self._change("put", key, put, allowance_s(size))
        return await self._confirm("put", key, size)

    async def _put_whole(
        self, key: str, source: bytes | Path, size: int, *, create_only: bool
    ) -> PutResult:
        path, mode = self._path(key), {"mode": "create"} if create_only else {}

        def put() -> tuple[int, bool]:
            data = source if isinstance(source, bytes) else source.read_bytes()
            return len(data), _proves(self._fsspec.pipe_file(path, data, **mode), data)

        size, is_proved = await self._change("put", key, put, allowance_s(size))
        return PutResult(size=size) if is_proved else await self._confirm("put", key, size)

    async def _refuses_again(self, key: str, source: bytes | Path, size: int) -> bool | None:
        """Put a new object again: whether the filesystem refuses that; None if it is unknown."""
        try:
            await self._put_whole(key, source, size, create_only=True)
        except AlreadyStored:
            return True
        except StorageError:  # the object is stored; the next put will ask again
            return None
        return False

    async def copy(self, source: ObjectInfo, key: str) -> PutResult:
        origin, path = self._path(source.key), self._path(key)

        def duplicate(target: str) -> int:
            if self._info(origin) is None:
                raise NotStored("copy", source.key, "there is no such object")
            if self.has_folders:
                self._make_folder_of(target)
            # pyarrow would call fsspec's `copy`, which treats a name as a pattern, like `rm`.
            if self._fsspec is not None:
                self._fsspec.cp_file(origin, target)
            else:
                self._fs.copy_file(origin, target)
            return source.size

        size = await self._change(
            "copy", key, lambda: self._into_place(path, duplicate), allowance_s(source.size)
        )
        return await self._confirm("copy", key, size)

    async def _confirm(self, operation: str, key: str, size: int) -> PutResult:
        stored = await self._call(operation, key, lambda: self._info(self._path(key)))
        if stored is None or stored.size != size:
            found = "no such object" if stored is None else f"{stored.size} bytes"
            raise StorageUnavailable(
                operation,
                self._shown(key),
                f"{size} bytes were written, but the store has {found}",
            )
        return PutResult(size=size)

    async def get(self, key: str, target: Path) -> int:
        got = size = 0
        for _ in range(DOWNLOAD_ATTEMPTS):
            entry = await self.head(key)
            if entry is None:
                raise NotStored("get", self._shown(key), "there is no such object")
            size = entry.size
            perform = partial(self._download, self._path(key), target, size)
            got = await self._call("get", key, perform, allowance_s(size))
            if got == size:
                return got
            # The transfer ended early, or the object was replaced after its size was read.
        raise StorageUnavailable("get", self._shown(key), f"{got} of {size} bytes arrived")

    async def read(self, key: str) -> bytes:
        path = self._path(key)
        return await self._call("read", key, lambda: self._read(path))

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        folder = f"{self._root}/{folder_prefix(prefix)}".rstrip("/")
        listing = self._find if self._pipes else self._list_folder
        found = await self._call("list", prefix, lambda: listing(folder))
        return sorted(
            (entry for entry in found if leftovers or not is_leftover(entry.name)),
            key=lambda entry: entry.key,
        )

    async def head(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        info = await self._call("head", key, lambda: self._info(path))
        return None if info is None else self._entry(info)

    async def delete(self, keys: Iterable[str]) -> None:
        failures: dict[str, StorageError] = {}

        async def delete_one(key: str) -> None:
            try:
                delete_it = partial(self._delete, self._path(key))
                await self._change("delete", key, delete_it, LOOKUP_S)
            except NotStored:
                return
            except StorageError as error:
                # Drivers report a missing object by many kinds of errors.
                if key in self._abandoned or await self.head(key) is not None:
                    failures[key] = error

        wanted = list(keys)
        await for_each(delete_one, wanted, at_once=_THREADS)
        await self._prune({self._path(key).rpartition("/")[0] for key in wanted})
        if failures:
            raise deletion_failure(self.where, failures)

    async def close(self) -> None:
        """Does nothing: the filesystem belongs to the location."""

    async def _prune(self, folders: set[str]) -> None:
        """Remove folders that the deletion left empty, if the filesystem has real folders."""
        remove = self._remove_empty
        if remove is not None and folders:
            perform = partial(prune, folders, self._root, remove)
            await self._call("delete", "", perform, LOOKUP_S + len(folders))

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _shown(self, key: str) -> str:
        return f"{self.where} ({key})" if "?" in self.where else f"{self.where}/{key}"

    async def _change(
        self, operation: str, key: str, perform: Callable[[], R], deadline_s: float
    ) -> R:
        """Change an object, unless an earlier change of it may still take effect."""
        self._abandoned.check(operation, key, self._shown(key))
        with self._abandoned.tracked(key, perform) as run:
            return await self._call(operation, key, run, deadline_s)

    async def _call(
        self,
        operation: str,
        key: str,
        perform: Callable[[], R],
        deadline_s: float = LOOKUP_S,
    ) -> R:
        try:
            # The deadline begins with the call, and not while others have all the slots. After it
            # the thread is abandoned.
            async with self._slots, asyncio.timeout(deadline_s):
                return await threads.call(perform)
        except Exception as error:  # each driver raises its own types
            raise self._translated(error, operation, key) from error

    def _translated(self, error: Exception, operation: str, key: str) -> StorageError:
        return translated(error, operation, self._shown(key) if key else self.where)

    def _into_place(self, path: str, make: Callable[[str], int]) -> int:
        """Create the object; if renames are cheap, under a temporary name first."""
        if not self._renames:
            return make(path)
        folder = path.rpartition("/")[0]
        temporary = f"{folder}/{TEMPORARY}{unique()}"
        try:
            size = make(temporary)
            self._fs.move(temporary, path)
            return size
        except BaseException:
            if self._info(temporary) is not None:
                self._fs.delete_file(temporary)
            raise

    def _write(self, path: str, source: bytes | Path) -> int:
        if isinstance(source, bytes):
            with self._open_for_writing(path) as stream:
                stream.write(source)
            return len(source)
        with open(source, "rb", buffering=0) as file:
            # The size is fixed now, because a log may grow during the upload.
            size = left = os.fstat(file.fileno()).st_size
            with self._open_for_writing(path) as stream:
                while chunk := file.read(min(left, _CHUNK_BYTES)):
                    stream.write(chunk)
                    left -= len(chunk)
                    moved_to(f"put {source}", size - left)
        if left:
            raise StorageUnavailable("put", path, _SHORTER)
        return size

    def _open_for_writing(self, path: str) -> Any:
        # By default, pyarrow would compress files named *.gz.
        create = partial(self._fs.open_output_stream, path, compression=None)
        for _ in range(self._folder_attempts):
            with suppress(FileNotFoundError):
                return create()
            self._make_folder_of(path)
        return create()

    def _make_folder_of(self, path: str) -> None:
        with suppress(FileNotFoundError, FileExistsError):
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)

    def _read(self, path: str) -> bytes:
        with self._fs.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())

    def _download(self, path: str, target: Path, size: int) -> int:
        """Download the object and return its size; replaces `target` only if that is `size`."""
        temporary = target.parent / f"{TEMPORARY}{unique()}"
        got = 0
        try:
            with (
                self._fs.open_input_stream(path, compression=None) as stream,
                open(temporary, "xb", buffering=0) as file,
            ):
                while chunk := stream.read(_CHUNK_BYTES):
                    write_all(file.fileno(), chunk)
                    got += len(chunk)
                    moved_to(f"get {path}", got)
            if got == size:
                os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        return got

    def _delete(self, path: str) -> None:
        # pyarrow would call fsspec's `rm`, which treats a * or [1] in a name as a pattern and
        # deletes everything that matches.
        if self._fsspec is not None:
            self._fsspec.rm_file(path)
        else:
            self._fs.delete_file(path)

    def _info(self, path: str) -> Any:
        import pyarrow.fs as arrow_fs

        self._forget_listings()
        info = self._fs.get_file_info(path)
        return info if info.type is arrow_fs.FileType.File else None

    def _list_folder(self, folder: str) -> Sequence[ObjectInfo]:
        import pyarrow.fs as arrow_fs

        self._forget_listings()
        selector = arrow_fs.FileSelector(folder, allow_not_found=True, recursive=True)
        try:
            infos = self._fs.get_file_info(selector)
        except NotADirectoryError:
            return []
        return [self._entry(info) for info in infos if info.type is arrow_fs.FileType.File]

    def _find(self, folder: str) -> Sequence[ObjectInfo]:
        """One listing; pyarrow would make another one first, to find out whether the folder
        exists."""
        self._forget_listings()
        try:
            found = self._fsspec.find(folder, detail=True)
        except FileNotFoundError:
            return []
        return [
            ObjectInfo(key=self._key(path), size=info["size"])
            for path, info in found.items()
            if info["type"] == "file"
        ]

    def _forget_listings(self) -> None:
        """Clear fsspec's cache of listings, because other processes may have written since."""
        if self._fsspec is not None:
            self._fsspec.invalidate_cache()

    def _entry(self, info: Any) -> ObjectInfo:
        modified = None if info.mtime is None else info.mtime.timestamp()
        return ObjectInfo(key=self._key(info.path), size=info.size, modified=modified)

    def _key(self, path: str) -> str:
        return path.strip("/").removeprefix(self._root.strip("/")).lstrip("/")


class AbandonedChanges:
    """The keys of changes that passed their deadline and may still take effect. Another change of
    the same key must wait for the earlier one, which could otherwise overwrite it."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def check(self, operation: str, key: str, where: str) -> None:
        """Raise StorageUnavailable if an earlier change of the key may still take effect."""
        if key in self._keys:
            cause = "an earlier change of it timed out and may still take effect"
            raise StorageUnavailable(operation, where, cause)

    @contextmanager
    def tracked(self, key: str, perform: Callable[[], R]) -> Iterator[Callable[[], R]]:
        """Wrap `perform` for a call in a thread inside this block. If the block ends before the
        call, the key counts as abandoned until the call has ended."""
        began, ended = threading.Event(), threading.Event()

        def run() -> R:
            began.set()
            try:
                return perform()
            finally:
                ended.set()
                self._keys.discard(key)

        try:
            yield run
        finally:
            if began.is_set() and not ended.is_set():
                self._keys.add(key)
                if ended.is_set():
                    self._keys.discard(key)


def _has_coroutines(filesystem: Any) -> bool:
    """True if an fsspec filesystem has coroutines, and a loop that runs them."""
    is_async = getattr(filesystem, "async_impl", False) is True
    runs_itself = is_async and not getattr(filesystem, "asynchronous", False)
    return runs_itself and hasattr(filesystem, "_pipe_file")


def _proves(answer: object, data: bytes) -> bool:
    etag = answer.get("ETag") if isinstance(answer, dict) else None
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return isinstance(etag, str) and etag.strip('"') == digest
