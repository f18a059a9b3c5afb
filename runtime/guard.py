"""Every process has a parent, and no process outlives what it was started for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when the thread that started it ends (Linux).

    Elsewhere the end of the connection to the parent does the same, a little later. A parent that
    is gone already ends this process at once.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent_pid:
        os._exit(1)


def load() -> None:
    """Import what `die_with_parent` needs, so that a forked child finds it loaded."""
    if sys.platform == "linux":
        _libc()


_loaded: list[object] = []


def _libc() -> object:
    if not _loaded:
        import ctypes

        _loaded.append(ctypes.CDLL(None, use_errno=True))
    return _loaded[0]


def _prctl(option: int, value: int) -> None:
    _libc().prctl(option, value, 0, 0, 0)  # type: ignore[attr-defined]


def kill_group(pid: int, signum: int = signal.SIGKILL) -> None:
    """Signal the process group that `pid` leads; one that is gone is fine."""
    if pid <= 1:
        raise ValueError(f"{pid} leads no group of ours: 0 would mean this process's own")
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def describe_exit(status: int) -> str:
    """What `os.waitpid` says of an ended process, in words that follow «the worker process»."""
    return describe_code(os.waitstatus_to_exitcode(status))


def describe_code(code: int) -> str:
    """The same for an exit code, which is negative where a signal ended the process."""
    if code >= 0:
        return f"exited with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    hint = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
    return f"was killed by signal {-code} ({name}){hint}"


def boot_id() -> str:
    """What changes when the machine is started anew; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def python_command(entry: str, arguments: Sequence[str]) -> list[str]:
    """How to start `module:function(arguments...)` in a fresh interpreter like this one.

    The import path is this process's own, made absolute: the child may change its directory.
    """
    import subprocess

    module, function = entry.split(":")
    path = [os.path.abspath(part or os.getcwd()) for part in sys.path]
    code = f"import sys; sys.path[:] = {path!r}; from {module} import {function} as main; main()"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", code, *arguments]
