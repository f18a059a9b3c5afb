"""Whether `import ray` means holdfast in this process.

It does if a folder of holdfast's, in which a package `ray` lies, is on the import path before
installed packages. Whatever passes on the import path passes this on: workers and services, a
node's agent, `multiprocessing`, and PYTHONPATH for programs that the script starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

FOLDER: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ray", "on_path")
_PYTHONPATH: Final = "PYTHONPATH"


def is_active() -> bool:
    """Whether `import ray` means holdfast here."""
    return FOLDER in sys.path


def activate() -> None:
    """From now on, `import ray` means holdfast in this process and in those that get its import
    path."""
    if not is_active():
        # The script's own folder stays the first.
        sys.path.insert(0 if sys.flags.safe_path else 1, FOLDER)


def deactivate() -> None:
    """`import ray` means Ray again, here and in programs that this process starts."""
    sys.path[:] = [folder for folder in sys.path if folder != FOLDER]
    os.environ.update(without(os.environ))


def added_to(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a Python in which `import ray` means holdfast."""
    folders = [FOLDER, *_others(environ)]
    return {**environ, _PYTHONPATH: os.pathsep.join(folders)}


def without(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a Python in which `import ray` means Ray."""
    if _PYTHONPATH not in environ:
        return dict(environ)
    return {**environ, _PYTHONPATH: os.pathsep.join(_others(environ))}


def _others(environ: Mapping[str, str]) -> Sequence[str]:
    folders = environ.get(_PYTHONPATH, "").split(os.pathsep)
    return [folder for folder in folders if folder and folder != FOLDER]
