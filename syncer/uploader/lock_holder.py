"""Finds the holder of a lock: from the file's content, or from the kernel."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.syncer.checkpoint.reading import HAS_NODES
from holdfast.syncer.files.regular import regular_descriptor

_LARGEST = 1 << 16
_LONGEST_COMMAND = 120
# Start times come in ticks of the kernel, and are compared between two clocks.
_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process as the file names it, unchecked. `started` and `since`, the time when it took the
    lock, are seconds since 1970, 0 if not known. `has_nodes`: nodes of its cluster upload to the
    experiment's folder."""

    pid: int = 0
    host: str = ""
    command: str = ""
    started: float = 0.0
    since: float = 0.0
    has_nodes: bool = False

    @classmethod
    def here(cls, *, has_nodes: bool = False) -> Self:
        """This process."""
        pid = os.getpid()
        return cls(
            pid=pid,
            host=os.uname().nodename,
            command=_command(sys.orig_argv),
            started=_start_time(pid),
            since=time.time(),
            has_nodes=has_nodes,
        )

    @classmethod
    def read(cls, descriptor: int) -> Self:
        """The holder in the lock file; an empty one if the content is not valid."""
        try:
            found = json.loads(os.pread(descriptor, _LARGEST, 0) or b"{}")
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(found, dict):
            return cls()
        return cls(
            pid=_number(found.get("pid"), int, most=1 << 31),
            host=_text(found.get("host")),
            command=_text(found.get("command")),
            started=_number(found.get("started"), float, most=1e11),
            since=_number(found.get("since"), float, most=1e11),
            has_nodes=found.get(HAS_NODES) is True,
        )

    def to_bytes(self) -> bytes:
        return json.dumps({one.name: getattr(self, one.name) for one in fields(self)}).encode()

    @property
    def is_controller(self) -> bool:
        """Whether the process that wrote this lives on this machine, and is not another one with
        the same pid."""
        if self.host != os.uname().nodename or self.pid <= 0 or not is_alive(self.pid):
            return False
        now = _start_time(self.pid)
        return not (self.started and now) or abs(now - self.started) < _TOLERANCE_S

    def __str__(self) -> str:
        facts = [self.command] if self.command else []
        facts += [f"since {_moment(self.since)}"] if self.since else []
        told = f"process {self.pid or '?'} on {self.host or '?'}"
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


def _text(value: Any) -> str:
    return _command([value]) if isinstance(value, str) else ""


def _number(value: Any, kind: type, *, most: float) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return kind(value) if is_number and 0 <= value <= most else kind(0)


def _start_time(pid: int) -> float:
    """The start time of the process (seconds since 1970); 0 if it is not known."""
    import psutil

    try:
        return psutil.Process(pid).create_time()
    except (psutil.Error, OSError):
        return 0.0


def is_alive(pid: int) -> bool:
    """Whether a process with this pid runs on this machine, whichever user owns it.

    A zombie does not count: in some containers nothing reaps them.
    """
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
