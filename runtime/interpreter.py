"""Starts other Python interpreters like this one."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


def start_child(
    entry: str,
    first: Sequence[str],
    *,
    environ: Mapping[str, str],
    inherited_fds: Sequence[int],
    directory: str | None = None,
    last: Sequence[str] = (),
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `entry` in a session of its own. Returns its process and this end of a connection.

    Its arguments are `first`, the descriptor of its end, this process's pid, `inherited_fds` and
    `last`. It starts in `directory`, and imports from there first. Raises OSError.
    """
    import subprocess

    ours, theirs = socket.socketpair()
    with theirs:
        fds = (theirs.fileno(), *inherited_fds)
        arguments = [*first, *map(str, (theirs.fileno(), os.getpid(), *inherited_fds)), *last]
        try:
            process = subprocess.Popen(
                python_command(entry, arguments, directory),
                env=dict(environ),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
    return process, ours


def python_command(
    entry: str, arguments: Sequence[str], directory: str | None = None
) -> list[str]:
    """The command that runs `module:function(arguments...)` in a fresh interpreter like this one.

    The child gets this process's import path, made absolute because it may change its directory.
    `directory` comes first in it. No signal is blocked there, as the script or its launcher may
    have done.
    """
    import subprocess

    module, function = entry.split(":")
    path = [os.path.abspath(part or os.getcwd()) for part in sys.path]
    if directory is not None:
        path.insert(0, directory)
    code = (
        "import sys, _signal; _signal.pthread_sigmask(_signal.SIG_SETMASK, ()); "
        f"sys.path[:] = {path!r}; from {module} import {function} as main; main()"
    )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", code, *arguments]


def absolute_pythonpath(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable PYTHONPATH with absolute folders, for processes that run elsewhere; nothing if
    it is not set."""
    given = environ.get("PYTHONPATH")
    folders = map(os.path.abspath, (given or "").split(os.pathsep))
    return {"PYTHONPATH": os.pathsep.join(folders)} if given else {}
