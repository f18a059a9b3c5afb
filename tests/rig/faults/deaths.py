"""Kills a process at its n-th disk operation, for campaigns of crashes.

`environ_for(fault)` makes every Python process that is started with it count its writes, renames,
fsyncs and deletions below the chosen directories. The one with the fault's role and count dies
there, before the operation, or in the middle of a write. The module `sitecustomize` in the folder
`hook` does it, which Python imports at its start, so that holdfast does not know of it. Writes of
native code are not seen.
"""

from __future__ import annotations

import builtins
import fcntl
import glob
import io
import itertools
import json
import mmap
import os
import signal
import stat
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from tests.rig import ROOT

VARIABLE: Final = "HOLDFAST_TEST_FAULT"
ROLES: Final = ("script", "warm", "worker", "projector", "uploader")
HOOK: Final = Path(__file__).parent.parent / "hook"
_SLOT = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A death when the process of this `role` reaches its operation number `at`, from 1; 0 for
    never.

    Operations count below `roots`. `is_torn`: half of that write, or of the next one, is
    performed. Every process of the `victims`, which are roles, dies at that moment; without
    victims, the process itself. With SIGSTOP for `signum` they are stopped instead, and perform
    the operation when they are continued. With `removes`, a pattern of paths, no process dies: the
    last of these paths is moved to `folder`/removed, and the operation performed. `folder` has the
    counts, and what was done.
    """

    folder: str
    roots: Sequence[str]
    role: str = "script"
    at: int = 0
    is_torn: bool = False
    victims: Sequence[str] = ()
    signum: int = signal.SIGKILL
    removes: str = ""


def environ_for(fault: Fault) -> dict[str, str]:
    """The environment variables of the processes."""
    folder = Path(fault.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pids").mkdir()
    (folder / "counts").write_bytes(bytes(_SLOT.size * len(ROLES)))
    return {VARIABLE: json.dumps(asdict(fault)), "PYTHONPATH": f"{HOOK}{os.pathsep}{ROOT}"}


def counts(folder: Path) -> dict[str, int]:
    """How many operations each role has performed (the most of any of its processes)."""
    data = (folder / "counts").read_bytes()
    return dict(zip(ROLES, (count for (count,) in _SLOT.iter_unpack(data)), strict=True))


def removed(folder: Path) -> Path:
    """The folder to which a fault has moved what it removed; missing if it has not."""
    return folder / "removed"


def fired(folder: Path) -> str:
    """The operation at which a process was killed; empty where none was."""
    path = folder / "fired"
    return path.read_text() if path.exists() else ""


# -- in the processes -----------------------------------------------------------------------------


def install(environ: Mapping[str, str]) -> None:
    """Called by `sitecustomize`: count, and die, as the environment says."""
    if VARIABLE in environ:
        _Counter(Fault(**json.loads(environ[VARIABLE]))).install()


def role_here() -> str:
    """The role of this process at its start, one of ROLES."""
    words = " ".join(sys.orig_argv)
    for role, module in (("projector", "projector.process"), ("uploader", "uploader.process")):
        if module in words:
            return role
    if "from multiprocessing." in words:  # a child that a trial has spawned
        return "worker"
    return "warm" if "runtime.warm" in words else "script"


class _Counter:
    """Wraps the functions of this process that change a disk."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.role = role_here()
        self._count = itertools.count(1)
        self._write, self._open, self._kill = os.write, os.open, os.kill
        self._rename = os.rename
        fd = os.open(Path(fault.folder, "counts"), os.O_RDWR | os.O_CLOEXEC)
        self._counts = mmap.mmap(fd, _SLOT.size * len(ROLES))
        os.close(fd)
        self._register()

    def _register(self) -> None:
        path = Path(self.fault.folder, "pids", f"{self.role}-{os.getpid()}")
        os.close(self._open(path, os.O_CREAT | os.O_WRONLY, 0o644))

    def install(self) -> None:
        os.register_at_fork(after_in_child=self._forked)
        for name in ("mkdir", "rmdir", "unlink", "remove", "truncate", "rename", "replace"):
            setattr(os, name, self._on_path(name, getattr(os, name)))
        for name in ("link", "symlink"):
            setattr(os, name, self._on_path(name, getattr(os, name), at=1))
        for name in ("fsync", "fdatasync", "ftruncate", "sendfile"):
            setattr(os, name, self._on_descriptor(name, getattr(os, name)))
        os.copy_file_range = self._on_descriptor("copy_file_range", os.copy_file_range, at=1)
        fcntl.ioctl = self._on_descriptor("ioctl", fcntl.ioctl)
        os.write = self._on_write(os.write)
        os.open = self._on_open(os.open)
        builtins.open = io.open = self._on_file(io.open)

    def _forked(self) -> None:
        if self.role == "warm":
            self.role = "worker"
        self._count = itertools.count(1)
        self._register()

    def concerns(self, path: Any, dir_fd: int | None = None) -> bool:
        if isinstance(path, int):
            return self._concerns_descriptor(path)
        text = os.fsdecode(path)
        if not os.path.isabs(text):
            base = os.getcwd() if dir_fd is None else _target(dir_fd)
            text = os.path.join(base, text)
        return any(text == root or text.startswith(f"{root}/") for root in self.fault.roots)

    def _concerns_descriptor(self, fd: int) -> bool:
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            return False
        is_disk = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        return is_disk and self.concerns(_target(fd))

    def pass_by(self, operation: str, tear: Callable[[], None] | None = None) -> None:
        """Count one operation, which is not performed yet; does not return if it is the last."""
        number = next(self._count)
        _SLOT.pack_into(self._counts, _SLOT.size * ROLES.index(self.role), number)
        fault = self.fault
        if self.role != fault.role or not self._has_come(number, can_tear=tear is not None):
            return
        told = f"{self.role} {number} {operation}{' torn' if fault.is_torn else ''}"
        if not self._is_first(told):
            return
        if fault.is_torn and tear is not None:
            tear()
        if fault.removes:
            self._remove()
        else:
            self._die()

    def _has_come(self, number: int, *, can_tear: bool) -> bool:
        if self.fault.is_torn:
            return can_tear and 0 < self.fault.at <= number
        return number == self.fault.at

    def _is_first(self, told: str) -> bool:
        """Whether no other process of this role has died before."""
        path = Path(self.fault.folder, "fired")
        try:
            fd = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        self._write(fd, told.encode())
        return True

    def _remove(self) -> None:
        """Move it away: open files stay open, as after a real removal, and it can be put back for
        checks."""
        if found := sorted(glob.glob(self.fault.removes, include_hidden=True)):
            aside = removed(Path(self.fault.folder))
            aside.mkdir()
            self._rename(found[-1], aside / Path(found[-1]).name)

    def _die(self) -> None:
        victims = self.fault.victims or (self.role,)
        here = os.getpid()
        pids = [here] if not self.fault.victims else self._pids_of(victims)
        for pid in pids:
            if pid != here:
                with suppress(ProcessLookupError):
                    self._kill(pid, self.fault.signum)
        if here in pids:
            self._kill(here, self.fault.signum)

    def _pids_of(self, roles: Sequence[str]) -> list[int]:
        """The processes that live: a number may belong to another process by now.

        The warm parent and the script come last: this process may end with them.
        """
        found = []
        for name in os.listdir(Path(self.fault.folder, "pids")):
            role, _, pid = name.partition("-")
            if role in roles and self._is_ours(pid):
                found.append((ROLES.index(role), int(pid)))
        return [pid for _, pid in sorted(found, reverse=True)]

    def _is_ours(self, pid: str) -> bool:
        try:
            return self.fault.folder.encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def _on_path(self, name: str, perform: Callable[..., Any], at: int = 0) -> Callable[..., Any]:
        def performed(*args: Any, **kwargs: Any) -> Any:
            dir_fd = kwargs.get("dir_fd", kwargs.get("src_dir_fd"))
            if self.concerns(args[at], dir_fd):
                self.pass_by(f"{name} {args[at]}")
            return perform(*args, **kwargs)

        return performed

    def _on_descriptor(
        self, name: str, perform: Callable[..., Any], at: int = 0
    ) -> Callable[..., Any]:
        def performed(*args: Any, **kwargs: Any) -> Any:
            fd = args[at] if isinstance(args[at], int) else args[at].fileno()
            if self._concerns_descriptor(fd):
                self.pass_by(f"{name} {_target(fd)}")
            return perform(*args, **kwargs)

        return performed

    def _on_write(self, perform: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        def write(fd: int, data: Any) -> int:
            if self._concerns_descriptor(fd):
                half = bytes(data)[: len(data) // 2]
                self.pass_by(f"write {_target(fd)}", lambda: _ignore(perform(fd, half)))
            return perform(fd, data)

        return write

    def _on_open(self, perform: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            makes = flags & (os.O_CREAT | os.O_TRUNC)
            if makes and self.concerns(path, kwargs.get("dir_fd")):
                self.pass_by(f"open {path}")
            return perform(path, flags, *args, **kwargs)

        return opened

    def _on_file(self, perform: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            changes = any(letter in mode for letter in "wax+")
            if not changes or not self.concerns(file):
                return perform(file, mode, *args, **kwargs)
            self.pass_by(f"open {file}")
            return _CountedFile(perform(file, mode, *args, **kwargs), self, str(file))

        return opened


class _CountedFile:
    """A file whose writes to the disk are counted: at each flush, or each write if unbuffered."""

    def __init__(self, file: Any, counter: _Counter, name: str) -> None:
        self._file, self._counter, self._name = file, counter, name

    def write(self, data: Any) -> Any:
        if isinstance(self._file, io.FileIO):
            half = bytes(data)[: len(data) // 2]
            self._counter.pass_by(f"write {self._name}", lambda: _ignore(self._file.write(half)))
        return self._file.write(data)

    def flush(self) -> None:
        self._counter.pass_by(f"flush {self._name}", self._file.flush)
        self._file.flush()

    def close(self) -> None:
        if not self._file.closed:
            self._counter.pass_by(f"close {self._name}", self._file.flush)
        self._file.close()

    def __enter__(self) -> _CountedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _target(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _ignore(_result: object) -> None:
    """For calls without a result."""
