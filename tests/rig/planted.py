"""Looks for planted secrets where others could read them: in processes and in files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path


def in_arguments(secrets: Mapping[str, bytes]) -> list[str]:
    """The processes of this machine and of all "machines" on it with a secret in an argument."""
    return [
        f"{name} is an argument of {_shown(pid)}"
        for pid in _pids()
        for name, secret in secrets.items()
        if secret in _read(f"/proc/{pid}/cmdline")
    ]


def in_environments(
    secrets: Mapping[str, bytes], may_have: Callable[[str], bool] = lambda command: False
) -> list[str]:
    """The processes with a secret in their environment, without those that `may_have` it, by
    their commands."""
    return [
        f"{name} is in the environment of {_shown(pid)}"
        for pid in _pids()
        for name, secret in secrets.items()
        if secret in _read(f"/proc/{pid}/environ") and not may_have(_command(pid))
    ]


def in_files(secrets: Mapping[str, bytes], folders: Iterable[Path]) -> list[str]:
    """The files below the folders that hold a secret."""
    return [
        f"{name} is in {path}"
        for path in _files(folders)
        for name, secret in secrets.items()
        if secret in _read(path)
    ]


def readable(secrets: Mapping[str, bytes], folders: Iterable[Path]) -> list[str]:
    """Those that another user can read: the file, and each folder above it."""
    return [
        f"{name} is in {path}, which others can read"
        for path in _files(folders)
        for name, secret in secrets.items()
        if secret in _read(path) and not _is_private(path)
    ]


def _is_private(path: Path) -> bool:
    """Whether the file is 0600, in a folder that is 0700."""
    modes = [stat.S_IMODE(part.stat().st_mode) for part in (path, path.parent)]
    return modes == [0o600, 0o700]


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for inside, _, names in os.walk(folder):
            for name in names:
                path = Path(inside, name)
                with suppress(OSError):  # removed since it was listed
                    if stat.S_ISREG(path.lstat().st_mode):
                        yield path


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != _OWN]


_OWN = os.getpid()


def _command(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")


def _shown(pid: int) -> str:
    return f"process {pid}: {_command(pid)[-200:]}"


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
