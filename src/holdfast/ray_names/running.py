"""Runs a script of Ray's in which `import ray` means holdfast."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from holdfast import ray_path
from holdfast.trial.errors import InvalidConfig


def run_script(words: Sequence[str]) -> NoReturn:
    """Become `python WORDS`: a script, or `-m` and a module, with its arguments.

    Because this process becomes that one, everything is as without holdfast: `__main__`,
    tracebacks, signals, the exit code, and the names in pickles. Raises InvalidConfig, OSError.
    """
    if sys.flags.ignore_environment:
        raise InvalidConfig(
            "holdfast ray passes the meaning of `import ray` on in PYTHONPATH, which this Python "
            "ignores (-E or -I): start it without them, or make `import holdfast.ray` the first "
            "line of the script"
        )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    os.execve(sys.executable, [sys.executable, *flags, *words], ray_path.added_to(os.environ))
