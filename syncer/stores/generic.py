"""A store over any pyarrow or fsspec filesystem.

Blocking calls run in threads. `pyarrow.fs.copy_files` is not used: in pyarrow 19 to 26 it reports
success if a part of an upload was refused and no object exists. Streams raise an error then, and
the size of each object is checked as well.

An fsspec filesystem that has coroutines and its own loop, such as s3fs, gets small objects,
removals and listings as coroutines (`FsspecStore`). pyarrow's wrapper opens a Python file for each
object, checks it afterwards, and lists each folder twice: that took twice as long as `fs.put` for
1,000 files of 4 KiB. If the answer to a put has the MD5 of the sent bytes as its ETag, that
confirms the put; otherwise the object is checked.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
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
    os_errors,
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
        self.has_folders = self._remove_empty is not None
        self._folder_attempts = FOLDER_ATTEMPTS if self.has_folders else 1
        self._slots = asyncio.Semaphore(_THREADS)
        self._abandoned = AbandonedChanges()

    @property
    def conditional_puts(self) -> bool | None:
        return False

    async def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        create_only: bool = False,
        resumable: bool = False,
    ) -> PutResult:
        check_key(key)
        if create_only and await self.head(key) is not None:
            raise AlreadyStored("put", self._shown(key), "there is such an object already")
        return await self._put(key, source)

    async def _put(self, key: str, source: bytes | Path) -> PutResult:
        path = self._path(key)
        size = await self._call("put", key, lambda: source_size(source))
        write = partial(self._write, source=source)
        size = await self._change(
            "put", key, lambda: self._into_place(path, write), allowance_s(size)
        )
        return await self._confirm("put", key, size)

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
        found = await self._find(prefix, folder)
        return [entry for entry in found if leftovers or not is_leftover(entry.name)]

    async def _find(self, prefix: str, folder: str) -> Sequence[ObjectInfo]:
        return await self._call("list", prefix, lambda: self._list_folder(folder))

    async def head(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        info = await self._call("head", key, lambda: self._info(path))
        return None if info is None else self._entry(info)

    async def delete(self, keys: Iterable[str]) -> None:
        failures: dict[str, StorageError] = {}

        async def delete_one(key: str) -> None:
            try:
                await self._delete_one(key)
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

    async def _delete_one(self, key: str) -> None:
        path = self._path(key)
        await self._change("delete", key, lambda: self._delete(path), LOOKUP_S)

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
        entries = (self._entry(info) for info in infos if info.type is arrow_fs.FileType.File)
        return sorted(entries, key=lambda entry: entry.key)

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

    def add(self, keys: Iterable[str]) -> None:
        self._keys.update(keys)

    def remove(self, keys: Iterable[str]) -> None:
        self._keys.difference_update(keys)

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


# Larger objects are streamed, so memory never holds a whole one.
_WHOLE_BYTES = 4 << 20
# Files up to this size are read in less time than a thread takes to wake.
_SMALL_BYTES = 64 << 10


def store_over(filesystem: Any, root: str, *, where: str) -> ArrowStore:
    """The store for a pyarrow filesystem other than this machine's disks."""
    base, _ = without_prefix(filesystem, root)
    has_coroutines = not renames_cheaply(base) and _has_coroutines(wrapped_fsspec(base))
    kind = FsspecStore if has_coroutines else ArrowStore
    return kind(filesystem, root, where=where)


def _has_coroutines(filesystem: Any) -> bool:
    """True if an fsspec filesystem has coroutines, and a loop that runs them."""
    is_async = getattr(filesystem, "async_impl", False) is True
    runs_itself = is_async and not getattr(filesystem, "asynchronous", False)
    return runs_itself and hasattr(filesystem, "_pipe_file")


class FsspecStore(ArrowStore):
    """Looks at an object after a put only if the filesystem's answer does not prove its bytes."""

    batch_bytes = _SMALL_BYTES

    def __init__(self, filesystem: Any, root: str, *, where: str = "") -> None:
        super().__init__(filesystem, root, where=where)
        # fsspec's way to put a new object, which s3fs has (`If-None-Match`), and gcsfs.
        has_mode = "mode" in signature(self._fsspec._pipe_file).parameters
        self._refuses_existing: bool | None = None if has_mode else False

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
        """A large object is streamed. With `create_only`, the store only looks before that."""
        data = None
        if create_only and self._refuses_existing is not False:
            data = await self._whole(check_key(key), source)
        if data is None:
            return await super().put(key, source, create_only=create_only)
        if self._refuses_existing is None and await self.head(key) is not None:
            raise AlreadyStored("put", self._shown(key), "there is such an object already")
        stored = await self._put_bytes(key, data, create_only=True)
        if self._refuses_existing is None:
            try:  # put it again to find out whether the filesystem refuses that
                await self._put_bytes(key, data, create_only=True)
                self._refuses_existing = False
            except AlreadyStored:
                self._refuses_existing = True
            except StorageError:  # the object is stored; the next put will ask again
                pass
        return stored

    async def put_batch(
        self,
        sources: Mapping[str, Path],
        *,
        for_s: float,
        stored: Callable[[str, PutResult], None],
        create_only: bool = False,
    ) -> None:
        """Read all files in one thread call and put them in one coroutine on the filesystem's
        loop. With single files, changes of threads took a fifth of the time for 1,000 files."""
        waiting = list(sources)

        def read() -> list[tuple[str, bytes]]:
            return [(self._path(key), self._read_small(key, sources[key])) for key in sources]

        contents = await self._call("put", waiting[0], read)
        proved: list[bool] = []

        def answered(is_proved: bool) -> None:
            proved.append(is_proved)
            waiting.pop(0)

        failure: StorageError | None = None
        deadline_s = for_s + allowance_s(sum(len(data) for _, data in contents))
        try:
            await self._change_there(
                "put",
                waiting,
                lambda ended: self._put_each(contents, for_s, answered, ended, create_only),
                deadline_s,
            )
        except StorageError as error:
            failure = error
        for key, (_, data), is_proved in zip(sources, contents, proved, strict=False):
            size = len(data)
            there = PutResult(size=size) if is_proved else await self._confirm("put", key, size)
            stored(key, there)
        if failure is not None:
            raise failure

    def _read_small(self, key: str, source: Path) -> bytes:
        with os_errors("put", self._shown(key)), open(source, "rb", buffering=0) as file:
            return file.read(_SMALL_BYTES)

    async def _put(self, key: str, source: bytes | Path) -> PutResult:
        data = await self._whole(key, source)
        return await (
            super()._put(key, source)
            if data is None
            else self._put_bytes(key, data, create_only=False)
        )

    async def _put_bytes(self, key: str, data: bytes, *, create_only: bool) -> PutResult:
        contents, proved = [(self._path(key), data)], list[bool]()
        await self._change_there(
            "put",
            [key],
            lambda ended: self._put_each(contents, 0.0, proved.append, ended, create_only),
            allowance_s(len(data)),
            may_replace=not create_only,
        )
        if proved == [True]:
            return PutResult(size=len(data))
        return await self._confirm("put", key, len(data))

    async def _whole(self, key: str, source: bytes | Path) -> bytes | None:
        """The current bytes of the source; None if they are too many for memory."""
        if isinstance(source, bytes):
            return source if len(source) <= _WHOLE_BYTES else None
        with os_errors("put", self._shown(key)):
            if os.stat(source).st_size <= _SMALL_BYTES:
                return _beginning(source)
        return await self._call("put", key, lambda: _beginning(source))

    async def _delete_one(self, key: str) -> None:
        path = self._path(key)
        # Not `rm` with many paths: s3fs silently ignores those that the storage refuses.
        await self._change_there(
            "delete",
            [key],
            lambda ended: self._on_its_loop(lambda: self._fsspec._rm_file(path), ended),
            LOOKUP_S,
        )

    async def _find(self, prefix: str, folder: str) -> Sequence[ObjectInfo]:
        """One listing; pyarrow would make another one first, to find out whether the folder
        exists."""
        self._forget_listings()
        try:
            async with self._slots, asyncio.timeout(LOOKUP_S):
                sizes = await self._sizes(folder)
        except Exception as error:  # a filesystem raises what its driver does: we raise ours
            raise self._translated(error, "list", prefix) from error
        entries = (ObjectInfo(key=self._key(path), size=size) for path, size in sizes.items())
        return sorted(entries, key=lambda entry: entry.key)

    async def _change_there(
        self,
        operation: str,
        keys: Sequence[str],
        perform: Callable[[Callable[[], None]], Awaitable[R]],
        deadline_s: float,
        *,
        may_replace: bool = True,
    ) -> R:
        """Like `_change`, on the filesystem's own loop. `perform` must call its argument when the
        change has ended, and may remove keys that are done; an error names the first one left.
        A change that can replace no object (not `may_replace`) cannot overtake a later one."""
        all_keys, first = frozenset(keys if may_replace else ()), keys[0]
        for key in keys:
            self._abandoned.check(operation, key, self._shown(key))
        try:
            async with self._slots, asyncio.timeout(deadline_s):
                self._abandoned.add(all_keys)
                return await perform(lambda: self._abandoned.remove(all_keys))
        except Exception as error:  # a filesystem raises what its driver does: we raise ours
            raise self._translated(error, operation, next(iter(keys), first)) from error

    async def _put_each(
        self,
        contents: Sequence[tuple[str, bytes]],
        for_s: float,
        answered: Callable[[bool], None],
        ended: Callable[[], None],
        create_only: bool = False,
    ) -> None:
        """Put the objects one after the other; after `for_s` none but the first is begun.

        `answered` is called for each, on the filesystem's loop, with whether the answer proves
        that these bytes have arrived. `ended` is always called at the end, which is later than
        the end of this call if the caller is cancelled. Raises whatever the filesystem raises.
        """

        async def put_all() -> None:
            until, mode = time.monotonic() + for_s, {"mode": "create"} if create_only else {}
            for number, (path, data) in enumerate(contents):
                if number and time.monotonic() >= until:
                    return
                answered(_proves(await self._fsspec._pipe_file(path, data, **mode), data))

        await self._on_its_loop(put_all, ended)

    async def _sizes(self, folder: str) -> dict[str, int]:
        """The sizes of all files in the folder and below, by path; empty if it is missing."""
        find = partial(self._fsspec._find, folder, detail=True)
        try:
            found = await self._on_its_loop(find, lambda: None)
        except FileNotFoundError:
            return {}
        return {path: info["size"] for path, info in found.items() if info["type"] == "file"}

    async def _on_its_loop(
        self, begin: Callable[[], Coroutine[Any, Any, R]], ended: Callable[[], None]
    ) -> R:
        async def perform() -> R:
            # The future is done as soon as it is cancelled, and the driver later.
            try:
                return await begin()
            finally:
                ended()

        performing = perform()
        try:
            future: Future[R] = asyncio.run_coroutine_threadsafe(performing, self._fsspec.loop)
        except BaseException:
            performing.close()
            ended()
            raise
        return await asyncio.wrap_future(future)


def _beginning(source: Path) -> bytes | None:
    """The bytes of a small file; None if it is larger. Raises OSError."""
    with open(source, "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > _WHOLE_BYTES:
            return None
        data = file.read(_WHOLE_BYTES + 1)
    return data if len(data) <= _WHOLE_BYTES else None


def _proves(answer: object, data: bytes) -> bool:
    etag = answer.get("ETag") if isinstance(answer, dict) else None
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return isinstance(etag, str) and etag.strip('"') == digest
