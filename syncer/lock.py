"""One incarnation at a time: a lock on the experiment that all of its processes hold together.

The lock is on an open file, which forked and started processes share. It is free when the last
process of the incarnation is gone, so taking it means that no one of the old one can still write.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any

from holdfast.syncer.errors import StorageError, StorageRefused


class Locked(StorageError):
    """Somebody else holds the experiment; `cause` says who."""


class ExperimentLock:
    def __init__(self, path: Path, *, deadline_s: float = 10.0) -> None:
        """Take the lock, waiting for stragglers of an incarnation whose controller is gone.

        Raises Locked at once while a controller lives, and after `deadline_s` otherwise.
        """
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(deadline_s)
        except BaseException:
            os.close(self._fd)
            raise
        holder = json.dumps({"pid": os.getpid(), "host": os.uname().nodename})
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, holder.encode(), 0)

    def fileno(self) -> int:
        """The descriptor that every process of this incarnation inherits."""
        return self._fd

    def release(self) -> None:
        """Give the lock up for this process; the others hold it until they end."""
        os.close(self._fd)

    def _take(self, deadline_s: float) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                raise StorageRefused(
                    "lock",
                    str(self._path),
                    error.strerror or str(error),
                    "This file system has no locks: set RAY_AIR_LOCAL_CACHE_DIR to a directory on "
                    "a local disk",
                ) from error
            holder = self._holder()
            if _lives(holder) or not _wait_for(self._fd, deadline_s):
                raise Locked(
                    "use the experiment in",
                    str(self._path.parent),
                    f"process {holder.get('pid', '?')} on {holder.get('host', '?')} is using it",
                    "Wait for it, stop it, or choose another RunConfig(name=...)",
                ) from None

    def _holder(self) -> dict[str, Any]:
        try:
            found = json.loads(os.pread(self._fd, 4096, 0) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def _wait_for(fd: int, deadline_s: float) -> bool:
    """Block until the lock is ours. `flock` knows no deadline, so that a thread waits in it."""
    waiting = os.dup(fd)
    taken = threading.Event()

    def wait() -> None:
        try:
            fcntl.flock(waiting, fcntl.LOCK_EX)
            taken.set()
        finally:
            os.close(waiting)

    threading.Thread(target=wait, name="holdfast-lock", daemon=True).start()
    return taken.wait(deadline_s)


def _lives(holder: dict[str, Any]) -> bool:
    pid = holder.get("pid")
    here = holder.get("host") == os.uname().nodename
    return here and isinstance(pid, int) and pid > 0 and is_alive(pid)


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs on this machine, whoever's it is.

    One that has ended does not, also where its parent never asks: some containers are like that.
    """
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
