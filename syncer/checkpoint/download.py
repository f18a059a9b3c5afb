"""Downloads a remote folder to this machine and verifies it.

A run may remove or replace the folder meanwhile: the reader gets one complete content, or an error
that says so.

All processes that read a remote checkpoint share one local copy (`shared_copy`). Copies are in a
folder of the user below the temporary directory (processes with another TMPDIR have their own),
named by the identity of their content: `<id>/` has the files, `<id>.gate` is locked by a process
that downloads, enters or leaves, and `<id>.readers` is locked, shared, by all readers. The locks
are the kernel's (flock): a killed reader holds none, and the next process to enter or leave
removes unread copies. If the downloading process makes no progress (it may be suspended), a
waiting process downloads its own copy.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.checkpoint import manifest as manifests
from holdfast.syncer.checkpoint.manifest import Manifest
from holdfast.syncer.checkpoint.reading import INCOMPLETE, missing
from holdfast.syncer.errors import (
    DirectoryMissing,
    ManifestMismatch,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    UnusableFile,
    os_errors,
)
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import remove_leftovers_in, remove_tree
from holdfast.syncer.files.tree import CLAIMS, MANIFEST_NAME, growth_below
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import GetHashed, ObjectInfo, Store, check_key, for_each

R = TypeVar("R")

_AT_ONCE = 16
_LATEST_INTERRUPT_S = 0.25
_TRIES = 3
_REMOVED = "it was removed meanwhile"
_WRITTEN = "it was rewritten during each attempt"


class FolderChanged(StorageError):
    """The content of a folder has changed since the download began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """The objects to download, and the manifest if there is one."""

    entries: tuple[ObjectInfo, ...]
    manifest: Manifest | None

    @property
    def identity(self) -> str:
        """A name for this content: other bytes under the same keys have another name."""
        known = self.manifest.to_bytes() if self.manifest is not None else b""
        facts = repr([(e.key, e.size, e.etag, e.modified) for e in self.entries])
        return hashlib.sha256(known + facts.encode()).hexdigest()[:32]


def with_store(location: Location, perform: Callable[[Store], Coroutine[Any, Any, R]]) -> R:
    """Open a location's store, call `perform`, and close it: for callers without an event loop.

    Also works in a thread with a running event loop (Jupyter), which it blocks.
    """

    async def session() -> R:
        store = location.open_store()
        try:
            return await perform(store)
        finally:
            await store.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(session())
    return _in_a_thread(session)


def _run(session: Coroutine[Any, Any, R]) -> R:
    """Run it on a loop that needs a quarter less CPU for a download than asyncio's own."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(session)


def _in_a_thread(session: Callable[[], Coroutine[Any, Any, R]]) -> R:
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []
    interrupted = False

    async def noted() -> R:
        begun.append((asyncio.get_running_loop(), asyncio.current_task()))
        if interrupted:
            raise asyncio.CancelledError
        return await session()

    # Its import registers an exit function, which Python refuses in an atexit handler.
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(1) as thread:
        try:
            future = thread.submit(lambda: _run(noted()))
            # A signal just before the wait does not interrupt it, but is seen after it.
            while not wait([future], timeout=_LATEST_INTERRUPT_S).done:
                continue
            return future.result()
        except KeyboardInterrupt:
            # An interrupted notebook cell would otherwise wait for the whole download.
            interrupted = True
            for loop, task in begun:
                if task is not None:
                    with suppress(RuntimeError):  # it has already ended
                        loop.call_soon_threadsafe(task.cancel)
            raise


def on_what_is_there(location: Location, perform: Callable[[Remote], R]) -> R:
    """Look at a folder and call `perform`; repeat if its content has changed meanwhile.

    Raises CheckpointGone, DirectoryMissing, ManifestMismatch or another StorageError.
    """
    for _ in range(_TRIES - 1):
        with suppress(FolderChanged):
            return perform(_look_at(location))
    return perform(_look_at(location))


def bring(location: Location, target: Path) -> None:
    """Download a folder into the new directory `target` and verify it.

    Raises like `on_what_is_there`; then the caller removes `target`.
    """

    def download(remote: Remote) -> None:
        remove_tree(target)
        with_store(location, lambda store: fetch(store, remote, target))

    on_what_is_there(location, download)


def _look_at(location: Location) -> Remote:
    """Look at a folder. A holdfast checkpoint without manifest is incomplete or being removed.

    Checkpoints of other programs have no manifest.
    """
    try:
        remote = with_store(location, look)
    except DirectoryMissing as error:
        if _is_in_experiment(location):
            raise missing(location.public, "open", error.cause) from error
        raise
    if remote.manifest is None and _is_in_experiment(location):
        raise missing(location.public, "open", INCOMPLETE)
    return remote


def _is_in_experiment(location: Location) -> bool:
    experiment = location.above(2)
    if experiment is None:
        return False
    try:
        return bool(with_store(experiment, lambda store: store.list(CLAIMS)))
    except StorageError:
        return False  # without permission to look, assume that the folder is complete


async def look(store: Store) -> Remote:
    """List the folder and read its manifest.

    Raises DirectoryMissing if it is empty, and ManifestMismatch if it is incomplete.
    """
    entries = tuple(await store.list())
    if not entries:
        raise DirectoryMissing("open", store.where, "this folder is empty")
    for entry in entries:
        _check_remote_key(entry.key, store.where)
    if not any(entry.key == MANIFEST_NAME for entry in entries):
        return Remote(entries=entries, manifest=None)
    manifest = Manifest.from_bytes(await store.read(MANIFEST_NAME), store.where)
    problems = manifest.differences({entry.key: entry.size for entry in entries})
    if problems:
        raise ManifestMismatch(store.where, problems)
    return Remote(entries=entries, manifest=manifest)


async def fetch(store: Store, remote: Remote, target: Path) -> None:
    """Download into the new directory `target` and verify; the manifest is not kept.

    Raises CheckpointGone or FolderChanged if the content is no longer there, or another
    StorageError; then the caller removes `target`.
    """
    try:
        await _download(store, remote, target)
    except StorageError:
        with suppress(StorageUnavailable):  # the first error is enough
            await _check_same(store, remote)
        raise
    if remote.manifest is None:  # no checksum would show a change
        await _check_same(store, remote)


async def _download(store: Store, remote: Remote, target: Path) -> None:
    await fetch_files(store.get_hashed, remote, target)


async def fetch_files(get: GetHashed, remote: Remote, target: Path) -> None:
    """Download the files into the new directory `target`, and compare them with the manifest: the
    bytes of each as soon as it is there, and at the end whether all are.

    `get` downloads an object to a new file, and returns its checksum. Raises StorageError.
    """
    known = remote.manifest
    wanted = [entry for entry in remote.entries if entry.key != MANIFEST_NAME]
    empty = known.empty_folders if known is not None else ()
    _make_folders(target, [*(entry.key.rpartition("/")[0] for entry in wanted), *empty])
    problems: list[str] = []

    async def fetch_one(entry: ObjectInfo) -> None:
        path = target / entry.key
        if known is None or known.checksum_of(entry.key) is None:
            await get(entry, path, None)
        elif problem := known.change(entry.key, await get(entry, path, manifests.ALGORITHM)):
            problems.append(problem)

    await for_each(fetch_one, wanted, at_once=_AT_ONCE)
    if problems:
        raise ManifestMismatch(str(target), sorted(problems))
    if known is not None:
        await threads.call(lambda: manifests.check(target, known))


async def _check_same(store: Store, remote: Remote) -> None:
    try:
        now = await look(store)
    except DirectoryMissing as error:
        raise missing(store.where, "download", _REMOVED) from error
    except ManifestMismatch as error:  # it was complete when the download began
        raise FolderChanged("download", store.where, _WRITTEN) from error
    if now.manifest is None and remote.manifest is not None:
        raise missing(store.where, "download", _REMOVED)
    if now.identity != remote.identity:
        raise FolderChanged("download", store.where, _WRITTEN)


def _check_remote_key(key: str, where: str) -> None:
    # Names come from the network: one with .. would be written outside the target.
    try:
        check_key(key)
    except ValueError as error:
        raise UnusableFile("open", where, f"it has an object named {key!r}") from error


def _make_folders(target: Path, names: list[str]) -> None:
    with os_errors("download to", str(target)):
        os.mkdir(target)
        for name in sorted({name for name in names if name}):
            os.makedirs(target / check_key(name), exist_ok=True)


_COPY = re.compile(r"([0-9a-f]{32})(\.\w+)?")
# How long another process may hold a gate without progress, and how long to wait when tidying up.
_STALLED_S = 60.0
_TIDY_S = 2.0
_LONGEST_PAUSE_S = 0.1


@contextmanager
def shared_copy(location: Location) -> Iterator[Path]:
    """A local directory with the content of a remote folder; read-only.

    Downloads it unless another process of this user has, or waits for the one that does. The last
    reader removes it. Raises CheckpointGone, DirectoryMissing, ManifestMismatch or another
    StorageError.
    """
    cache = cache_folder()
    _remove_unread(cache)
    copy, lock = on_what_is_there(location, lambda remote: _enter_any(cache, location, remote))
    reader = os.getpid()
    try:
        yield copy
    finally:
        # In a child that was forked meanwhile and leaves the block, the lock belongs to the
        # parent.
        if os.getpid() == reader:
            _leave(copy, lock)
        else:
            os.close(lock)


def cache_folder() -> Path:
    """The user's folder of copies, created if necessary. Raises StorageRefused if it is another
    user's."""
    folder = _cache_folder()
    with os_errors("download to", str(folder)):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_our_own(folder):
        raise StorageRefused(
            "download to",
            str(folder),
            "this folder belongs to another user, or others may write to it",
            "Remove it, or set TMPDIR to your own directory",
        )
    return folder


def remove_unread() -> None:
    """Remove copies whose readers were killed, in this process's temporary directory."""
    with suppress(FileNotFoundError):
        if _is_our_own(_cache_folder()):
            _remove_unread(_cache_folder())


def _cache_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"


def _is_our_own(folder: Path) -> bool:
    facts = os.lstat(folder)
    is_safe = facts.st_uid == os.getuid() and not facts.st_mode & 0o022
    return stat.S_ISDIR(facts.st_mode) and is_safe


def _enter_any(cache: Path, location: Location, remote: Remote) -> tuple[Path, int]:
    """Like `_enter`, but with a separate copy if the shared one makes no progress."""
    try:
        return _enter(cache / remote.identity, location, remote)
    except BlockingIOError:
        return _enter(cache / os.urandom(16).hex(), location, remote)


def _enter(copy: Path, location: Location, remote: Remote) -> tuple[Path, int]:
    """The copy and a descriptor that locks it. Downloads it if it is missing.

    Raises BlockingIOError if another process holds its gate and makes no progress.
    """
    partial = copy.with_name(f"{copy.name}.partial")
    with _gate(copy, _STALLED_S, progress=lambda: growth_below(str(partial))):
        if not copy.is_dir():
            remove_tree(partial)
            try:
                with_store(location, lambda store: fetch(store, remote, partial))
                os.rename(partial, copy)
            except BaseException as error:
                _remove_if_unread(copy)
                if isinstance(error, StorageError) and _is_disk_full(error):
                    error.advice = f"Free space in {copy.parent}, or set TMPDIR to a larger disk"
                raise
        lock = _lock_file(copy, "readers")
        _lock(lock, fcntl.LOCK_SH)
    return copy, lock


def _is_disk_full(error: BaseException | None) -> bool:
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


def _leave(copy: Path, lock: int) -> None:
    # Unlock, not only close: a child that was forked meanwhile has the descriptor as well.
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)
    with suppress(OSError), _gate(copy, _TIDY_S):  # a leftover does no harm
        _remove_if_unread(copy)


@contextmanager
def _gate(
    copy: Path, wait_s: float = 0.0, progress: Callable[[], int] = lambda: 0
) -> Iterator[None]:
    """Hold the gate of a copy.

    Raises BlockingIOError if another process holds it for `wait_s` seconds without `progress`.
    """
    while True:
        gate = _lock_file(copy, "gate")
        try:
            _lock_in_time(gate, wait_s, progress)
            # The previous holder may have removed the file meanwhile: then the lock is
            # meaningless.
            if os.fstat(gate).st_nlink:
                yield
                return
        finally:
            # As above: a child that another thread has forked would hold it forever.
            with suppress(OSError):
                fcntl.flock(gate, fcntl.LOCK_UN)
            os.close(gate)


def _lock_in_time(gate: int, wait_s: float, progress: Callable[[], int]) -> None:
    until, pause_s, before = time.monotonic() + wait_s, 0.001, progress()
    while True:
        try:
            _lock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                if before == (before := progress()):
                    raise
                until = time.monotonic() + wait_s
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _lock_file(copy: Path, kind: str) -> int:
    return os.open(f"{copy}.{kind}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(descriptor: int, flags: int) -> None:
    try:
        fcntl.flock(descriptor, flags)
    except BlockingIOError:
        raise
    except OSError as error:
        raise StorageRefused(
            "lock in",
            str(_cache_folder()),
            error.strerror or str(error),
            "This file system has no locks: set TMPDIR to a directory on a local disk",
        ) from error


def _remove_if_unread(copy: Path) -> None:
    """Remove the copy and its lock files, with the gate held, unless a process reads it."""
    readers = _lock_file(copy, "readers")
    try:
        fcntl.flock(readers, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(copy)
        remove_tree(f"{copy}.partial")
        os.unlink(f"{copy}.readers")
        os.unlink(f"{copy}.gate")
    except BlockingIOError:
        return
    finally:
        os.close(readers)


def _remove_unread(cache: Path) -> None:
    for copy in {cache / match[1] for match in map(_COPY.fullmatch, os.listdir(cache)) if match}:
        # Skip copies whose gate is locked, or that may not be removed.
        with suppress(OSError), _gate(copy):
            _remove_if_unread(copy)
    remove_leftovers_in(cache)
