"""The command that starts another Python interpreter like this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def python_command(
    entry: str, arguments: Sequence[str], directory: str | None = None
) -> list[str]:
    """The command that runs `module:function(arguments...)` in a fresh interpreter like this one.

    The child gets this process's import path, made absolute because it may change its directory.
    `directory` comes first in it.
    """
    import subprocess

    module, function = entry.split(":")
    path = [os.path.abspath(part or os.getcwd()) for part in sys.path]
    if directory is not None:
        path.insert(0, directory)
    code = f"import sys; sys.path[:] = {path!r}; from {module} import {function} as main; main()"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", code, *arguments]
