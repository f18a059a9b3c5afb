"""Says whether `import ray` means holdfast in this process, and finds Ray's paths in holdfast.

It does if a folder of holdfast's, in which a package `ray` lies, is on the import path before
installed packages. Whatever passes on the import path passes this on: workers and services, a
node's agent, `multiprocessing`, and PYTHONPATH for programs that the script starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from holdfast.errors import TuneError

_ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER: Final = os.path.join(_ROOT, "ray", "on_path")
_PYTHONPATH: Final = "PYTHONPATH"
_RAY: Final = "ray"
_NAMES: Final = "holdfast.ray_names"


class RayAlreadyImported(TuneError, ImportError):
    """`import ray` cannot mean holdfast any more in this process."""


def is_active() -> bool:
    """True if `import ray` means holdfast here."""
    return FOLDER in sys.path


def activate() -> None:
    """From now on, `import ray` means holdfast in this process and in those that get its import
    path. Raises RayAlreadyImported."""
    check_not_imported()
    if not is_active():
        # The script's own folder stays the first.
        sys.path.insert(0 if sys.flags.safe_path else 1, FOLDER)


def check_not_imported() -> None:
    """Raises RayAlreadyImported if `ray` is another module already."""
    found = sys.modules.get(_RAY)
    if found is not None and not _is_ours(found):
        raise RayAlreadyImported(
            f"Ray itself is imported already ({getattr(found, '__file__', None)}): import "
            f"holdfast.ray first, or start the script with: holdfast ray "
            f"{sys.argv[0] or 'script.py'}",
            name=_RAY,
        )


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


def _is_ours(module: ModuleType) -> bool:
    origin = getattr(module.__spec__, "origin", None)
    return isinstance(origin, str) and origin.startswith(_ROOT + os.sep)


def _others(environ: Mapping[str, str]) -> Sequence[str]:
    folders = environ.get(_PYTHONPATH, "").split(os.pathsep)
    return [folder for folder in folders if folder and folder != FOLDER]


class OtherPaths:
    """The last finder: module paths of Ray below `holdfast`, such as `holdfast.tune.tuner`.

    A script that replaces `ray` by `holdfast` imports names from them. It is asked only for
    modules that nothing else has found.
    """

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        if not name.startswith("holdfast.") or name.startswith(_NAMES):
            return None
        found: ModuleSpec | None = import_module(f"{_NAMES}.names").other_path_spec(name)
        return found


def find_last() -> None:
    """Ask this finder after all others."""
    sys.meta_path.append(OtherPaths())
