"""The lock on an experiment, which allows one incarnation at a time, and the holder of a lock.

There are two files. `.lock` is locked by the controller and the services that write its files,
which share one open file. The warm parent and the workers, which run the user's code, have no
descriptor of it; each of them holds a shared lock on `.lock-workers` with its own open file. After
taking `.lock`, a new incarnation also waits for `.lock-workers`, so that no process of an earlier
one can still write.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import sys
import threading
import time
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Self

from holdfast.dataclass import dataclass
from holdfast.forked import close_in_children
from holdfast.schema import Between, decode
from holdfast.syncer.checkpoint.reading import LOCK_WORKERS
from holdfast.syncer.errors import StorageError, StorageRefused
from holdfast.syncer.files.durable import opened
from holdfast.syncer.files.tree import is_at, regular_descriptor

# The lock files that this process holds.
_HELD: set[Path] = set()
_LARGEST = 1 << 16
_LONGEST_COMMAND = 120
# Start times come in ticks of the kernel, and are compared with those of another clock.
_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process as the file names it, unchecked. `since`, the time when it took the lock, is in
    seconds since 1970, 0 if not known. `has_nodes`: nodes of its cluster upload to the
    experiment's folder."""

    pid: Annotated[int, Between(0, 1 << 31)] = 0
    host: str = ""
    command: str = ""
    since: Annotated[float, Between(0, 1e11)] = 0.0
    has_nodes: bool = False

    @classmethod
    def here(cls, *, has_nodes: bool = False) -> Self:
        """This process."""
        return cls(
            pid=os.getpid(),
            host=os.uname().nodename,
            command=_command(sys.orig_argv),
            since=time.time(),
            has_nodes=has_nodes,
        )

    @classmethod
    def read(cls, descriptor: int) -> Self:
        """The holder in the lock file; an empty one if the content is not valid."""
        try:
            holder: Self = decode(cls, json.loads(os.pread(descriptor, _LARGEST, 0) or b"{}"))
        except (ValueError, RecursionError):
            return cls()
        return holder

    def to_bytes(self) -> bytes:
        return json.dumps({one.name: getattr(self, one.name) for one in fields(self)}).encode()

    @property
    def is_controller(self) -> bool:
        """True if the process that wrote this lives on this machine, and is not another one with
        the same pid."""
        if self.host != os.uname().nodename or self.pid <= 0 or not is_alive(self.pid):
            return False
        return not self.since or _start_time(self.pid) < self.since + _TOLERANCE_S

    def __str__(self) -> str:
        facts = [_command([self.command])] if self.command else []
        facts += [f"since {_moment(self.since)}"] if self.since else []
        told = f"process {self.pid or '?'} on {_command([self.host]) or '?'}"
        return f"{told} ({', '.join(facts)})" if facts else told


def holder_of(path: Path, descriptor: int | None = None) -> str:
    """The holder of the lock, in words: the process in the file if it lives, otherwise those that
    the kernel names."""
    if descriptor is not None:
        said = Holder.read(descriptor)
        if said.is_controller:
            return str(said)
    return kernels_holder_of(path) or (str(said) if descriptor is not None else "another process")


def current_holder(path: Path) -> str:
    """The current holder of the lock on this machine, in words; "" if there is none.

    Writes nothing: it takes a shared lock and releases it at once.
    """
    try:
        descriptor = regular_descriptor(path, os.O_RDONLY)
    except FileNotFoundError:
        return ""
    except PermissionError:
        return kernels_holder_of(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        is_held = error.errno in (errno.EWOULDBLOCK, errno.EAGAIN)
        return holder_of(path, descriptor) if is_held else ""
    finally:
        os.close(descriptor)
    return ""


def kernels_holder_of(path: Path) -> str:
    """The live processes that took a lock on the file, in words; "" if none is known.

    Needs no permission to open the file.
    """
    pids = [pid for pid in _lockers(path) if pid != os.getpid() and is_alive(pid)]
    return " and ".join(_described(pid) for pid in pids[:3])


def original_of(path: Path, descriptor: int) -> str:
    """The folder whose lock file this is a copy of, and the holder of that lock, in words; "" if
    this is the original, or if no live process of this machine holds the original.

    A copy of a running experiment's folder has the lock file, but not the lock. If both folders
    upload to the same storage, a run in the copy would take the storage away from the original
    run. A copy has the same content, including the time at which the lock was taken.
    """
    import psutil

    said = Holder.read(descriptor)
    if not said.is_controller:
        return ""
    content, ours = os.pread(descriptor, _LARGEST, 0), os.fstat(descriptor)
    with suppress(psutil.Error, OSError):
        for opened in psutil.Process(said.pid).open_files():
            other = Path(opened.path)
            if other.name == path.name and _is_original(other, content, ours):
                return f"{other.parent}, which is in use by {said}"
    return ""


def _is_original(other: Path, content: bytes, ours: os.stat_result) -> bool:
    with suppress(OSError), open(other, "rb") as file:
        is_another = not os.path.samestat(os.fstat(file.fileno()), ours)
        return is_another and file.read(_LARGEST) == content
    return False


def _lockers(path: Path) -> list[int]:
    """The processes that took a lock on the file (Linux); their children may share it."""
    try:
        facts = os.stat(path)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    found: dict[int, None] = {}
    for line in lines:
        parts = line.split()
        if len(parts) < 8 or parts[1] == "->" or parts[1] != "FLOCK":
            continue
        device, _, inode = parts[5].rpartition(":")
        major, _, minor = device.partition(":")
        with suppress(ValueError):
            known = (int(major, 16), int(minor, 16), int(inode))
            if known == (os.major(facts.st_dev), os.minor(facts.st_dev), facts.st_ino):
                found[int(parts[4])] = None
    return [pid for pid in found if pid > 0]


def _described(pid: int) -> str:
    import psutil

    told = f"process {pid} on {os.uname().nodename}"
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        what = _command(process.cmdline()) or process.name()
        started = _moment(process.create_time())
        told += f" ({what}, of the user {process.username()}, started {started})"
    return told


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _command(words: list[str]) -> str:
    text = "".join(c if c.isprintable() else "?" for c in " ".join(words))
    return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]}..."


def _start_time(pid: int) -> float:
    """The start time of the process (seconds since 1970); 0 if it is not known."""
    import psutil

    try:
        return psutil.Process(pid).create_time()
    except (psutil.Error, OSError):
        return 0.0


def is_alive(pid: int) -> bool:
    """True if a process with this pid runs on this machine, whichever user owns it.

    A zombie does not count: in some containers nothing reaps them.
    """
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


__all__ = ["ExperimentLock", "LockLost", "Locked", "check_ownership", "is_alive"]


class Locked(StorageError):
    """Another process holds the lock; `cause` names it."""


class LockLost(StorageError):
    """This incarnation no longer holds its lock: another one may have begun."""


class ExperimentLock:
    """The lock of this incarnation, held from its creation until the last owner releases it."""

    def __init__(
        self,
        path: Path,
        *,
        deadline_s: float = 10.0,
        is_mirror: bool = False,
        has_nodes: bool | None = None,
    ) -> None:
        """Take the lock. Waits for remaining processes of a run whose controller is gone.

        `is_mirror`: the folder is uploaded to storage, so a copy of the folder is refused while
        the original runs. `has_nodes`: whether nodes of a cluster upload to the folder; None if
        this is not a run, and what the last one has left there stays. Raises Locked at once if a
        controller holds the lock, otherwise after `deadline_s`.
        """
        self._path = path
        self._owners = 1
        self._owning = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = _open(path)
        try:
            self._take(deadline_s)
            if not is_at(path, self._fd):
                raise self._locked("the experiment was removed meanwhile")
            self._wait_for_workers(deadline_s)
            if is_mirror and (original := original_of(path, self._fd)):
                raise self._locked(f"this folder is a copy of {original}")
        except BaseException:
            os.close(self._fd)
            raise
        if has_nodes is None:
            has_nodes = Holder.read(self._fd).has_nodes
        self._said = Holder.here(has_nodes=has_nodes).to_bytes()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, self._said, 0)
        _HELD.add(path)
        close_in_children(self)

    def fileno(self) -> int:
        """The descriptor that this incarnation's services inherit."""
        return self._fd

    @property
    def workers(self) -> str:
        """The file on which each process that runs the user's code holds a shared lock."""
        return str(self._path.with_name(LOCK_WORKERS))

    @property
    def claim(self) -> tuple[int, bytes]:
        """The arguments for `check_ownership` in a process that inherits the descriptor."""
        return self._fd, self._said

    def check_ownership(self) -> None:
        """Raise LockLost if this incarnation no longer holds the lock."""
        if self._fd < 0:
            raise _lost(self._path, "this process has released it, or was forked from its holder")
        check_ownership(self._path, self._fd, self._said)

    def hold(self) -> None:
        """Add an owner in this process, which must call `release`, too."""
        with self._owning:
            self._owners += 1

    def release(self) -> None:
        """Release the lock in this process, after its last owner; other processes hold it until
        they end."""
        with self._owning:
            self._owners -= 1
            is_ours = self._owners > 0
        if not is_ours:
            self._close()

    def close_in_child(self) -> None:
        """Close the lock in a forked child, which would keep the experiment locked after the
        run."""
        self._owning = threading.Lock()
        self._close()

    def _close(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            _HELD.discard(self._path)
            os.close(descriptor)

    def _take(self, deadline_s: float) -> None:
        try:
            is_taken = _locks(self._fd)
        except OSError as error:
            raise StorageRefused(
                "lock",
                str(self._path),
                error.strerror or str(error),
                "This file system has no locks: set RAY_AIR_LOCAL_CACHE_DIR to a directory on a "
                "local disk",
            ) from error
        if is_taken or (not self._is_run() and _wait_for(self._fd, fcntl.LOCK_EX, deadline_s)):
            return
        raise self._locked(f"{holder_of(self._path, self._fd)} is using it")

    def _is_run(self) -> bool:
        """True if a live controller holds the lock. The file may also name a live process that
        has released it, such as a notebook, while another process takes a shared lock for a moment
        to look, or, if it is this process, while a process of its last run still ends."""
        said = Holder.read(self._fd)
        if said.pid == os.getpid() and self._path not in _HELD:
            return False
        return said.is_controller and not _locks(self._fd, fcntl.LOCK_SH)

    def _wait_for_workers(self, deadline_s: float) -> None:
        """Wait for workers of the earlier run. No new ones can start: its controller is gone."""
        path = self._path.with_name(LOCK_WORKERS)
        descriptor = _open(path)
        try:
            if not _wait_for(descriptor, fcntl.LOCK_EX, deadline_s):
                raise self._locked(
                    f"workers of an earlier run still live: {holder_of(path, descriptor)}"
                )
        finally:
            os.close(descriptor)

    def _locked(self, cause: str) -> Locked:
        return Locked(
            "use the experiment in",
            str(self._path.parent),
            cause,
            "Wait for it or stop it; a new run can use another name=...",
        )


def check_ownership(path: Path, descriptor: int, said: bytes) -> None:
    """Raise LockLost unless `descriptor` is the file at `path`, is locked, and contains `said`."""
    held = os.fstat(descriptor)
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise _lost(path, "it was removed") from None
    if (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
        raise _lost(path, "another file was put in its place")
    with opened(path, os.O_RDWR) as other:
        # If a second open file can take the lock, the first one no longer holds it.
        if _locks(other) and _tells_apart(path):
            raise _lost(path, "it was unlocked")
    if not _locks(descriptor) or os.pread(descriptor, 1 << 16, 0) != said:
        who = kernels_holder_of(path) or str(Holder.read(descriptor))
        raise _lost(path, f"{who} has taken it")


def _lost(path: Path, cause: str) -> LockLost:
    return LockLost(
        "keep the lock",
        str(path),
        cause,
        "This run has ended, so that two runs never write to one experiment. Make sure that no "
        "other one runs, then restore it",
    )


def _locks(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tells_apart(path: Path) -> bool:
    """Whether two open files of one process exclude each other on this file system; on some
    network file systems they do not."""
    probe_path = path.with_name(f"{path.name}-trial-{os.getpid()}-{threading.get_ident()}")
    probe_path.touch(0o600)
    try:
        with opened(probe_path, os.O_RDWR) as first, opened(probe_path, os.O_RDWR) as second:
            return _locks(first) and not _locks(second)
    finally:
        probe_path.unlink(missing_ok=True)


def _open(path: Path) -> int:
    """Open the file. Only users who may write to the experiment's folder can open and lock it."""
    mode = 0o600
    folder = stat.S_IMODE(os.stat(path.parent).st_mode)
    mode |= 0o060 if folder & stat.S_IWGRP else 0
    mode |= 0o006 if folder & stat.S_IWOTH and not folder & stat.S_ISVTX else 0
    descriptor = regular_descriptor(path, os.O_RDWR | os.O_CREAT, mode)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        with suppress(PermissionError):  # the file belongs to another user of the folder
            os.fchmod(descriptor, mode)
    return descriptor


def _wait_for(fd: int, how: int, deadline_s: float) -> bool:
    """Wait for the lock. A thread waits in `flock`, which has no deadline."""
    if _locks(fd, how):
        return True
    waiting = os.dup(fd)
    taken = threading.Event()

    def wait() -> None:
        try:
            fcntl.flock(waiting, how)
            taken.set()
        finally:
            os.close(waiting)

    threading.Thread(target=wait, name="holdfast-lock", daemon=True).start()
    return taken.wait(deadline_s)
