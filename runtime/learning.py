"""Records the imports of a worker up to its first report, so that later workers can preload them.

The watch begins before user code runs. It ends at the first report, or when user code changes the
environment, because later imports may depend on that change. Only modules of installed
distributions are recorded: the import of the user's own modules may have side effects, so only
trials import them.
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import suppress
from enum import Enum, auto
from functools import cache
from types import FrameType, ModuleType
from typing import Any, Final


class CodeOrigin(Enum):
    IMPORTING = auto()  # the machinery of `import`
    STANDARD = auto()
    DISTRIBUTION = auto()
    HOLDFAST = auto()
    USER = auto()


def origin_of(file: str) -> CodeOrigin:
    """The origin of a file that a code object or a module's `__spec__.origin` names."""
    if file.startswith("<frozen importlib"):
        return CodeOrigin.IMPORTING
    if file in ("built-in", "frozen") or file.startswith("<frozen "):
        return CodeOrigin.STANDARD
    for folders, origin in _folders():
        if file.startswith(folders):
            return origin
    return CodeOrigin.USER


def is_installed(package: str) -> bool:
    """True if the top-level package or module is not the user's. Imports nothing."""
    from importlib.util import find_spec

    try:
        spec = find_spec(package)
    except (ImportError, ValueError, AttributeError):  # something that only looks like a module
        return False
    if spec is None:
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(places) and all(origin_of(place) is not CodeOrigin.USER for place in places)


@cache
def _folders() -> tuple[tuple[tuple[str, ...], CodeOrigin], ...]:
    """The folders of each origin, inner folders first: distributions are inside Python's own."""
    import site

    # Not from sysconfig: its import takes 2 ms of each run's start.
    installed, standard = set(site.getsitepackages()), {os.path.dirname(os.__file__)}
    if site.ENABLE_USER_SITE:
        installed.add(site.getusersitepackages())
    for folder in sys.path:
        above, name = os.path.split(folder)
        if name in ("site-packages", "dist-packages"):
            installed.add(folder)
        elif name == "lib-dynload":
            standard.add(above)
    package = sys.modules[__name__.partition(".")[0]].__path__
    return (
        (_prefixes(set(package)), CodeOrigin.HOLDFAST),
        (_prefixes(installed), CodeOrigin.DISTRIBUTION),
        (_prefixes(standard), CodeOrigin.STANDARD),
    )


def _prefixes(folders: set[str]) -> tuple[str, ...]:
    found = {*folders, *map(os.path.realpath, folders)}
    return tuple(sorted(os.path.join(folder, "") for folder in found))


# The largest library, TensorFlow, imports 3,200.
MOST_MODULES: Final = 20_000
LONGEST_NAME: Final = 200

# Variables that libraries set in calls, and do not read at their import.
_OF_CALLS: Final = (b"PL_", b"ACCELERATE_", b"FSDP_", b"TORCHELASTIC_")
# Their import starts threads or connections that do not survive a fork.
_NEVER: Final = frozenset({"mpi4py", "horovod"})
_INSTALLED: Final = (CodeOrigin.STANDARD, CodeOrigin.DISTRIBUTION, CodeOrigin.HOLDFAST)


class ImportWatch:
    """The watch of one worker: created before the fork, begun after it."""

    def __init__(self) -> None:
        self._known = frozenset(sys.modules)
        self._path = list(sys.path)
        self._order = _Order()
        self._seen: list[str] | None = None
        self._setters = os.putenv, os.unsetenv
        self.began_s = 0.0

    def begin(self) -> None:
        """Begin. A change of the environment may end the watch: `os.environ` calls `os.putenv` and
        `os.unsetenv`, which this replaces."""
        self.began_s = time.perf_counter()
        sys.meta_path.insert(0, self._order)
        os.putenv, os.unsetenv = self._put, self._unset

    def end(self) -> list[str]:
        """The names of the imported modules, in the order in which their imports began."""
        self._stop()
        # If user code put folders in front of the original path, names may mean other modules.
        if sys.path[: len(self._path)] != self._path:
            return []
        seen = self._seen or []
        return [name for name in seen if _is_of_use(name, sys.modules.get(name))][:MOST_MODULES]

    def _stop(self) -> None:
        if self._seen is None:
            os.putenv, os.unsetenv = self._setters
            with suppress(ValueError):  # user code has removed it
                sys.meta_path.remove(self._order)
            self._seen = [name for name in self._order.begun if name not in self._known]

    def _put(self, key: Any, value: Any, /) -> None:
        if os.environb.get(os.fsencode(key)) != os.fsencode(value):
            self._heed(key, sys._getframe(1))
        self._setters[0](key, value)

    def _unset(self, key: Any, /) -> None:
        if os.fsencode(key) in os.environb:
            self._heed(key, sys._getframe(1))
        self._setters[1](key)

    def _heed(self, key: Any, caller: FrameType) -> None:
        if not os.fsencode(key).startswith(_OF_CALLS) and not _comes_with_an_import(caller):
            self._stop()


class _Order:
    """A finder that finds nothing and records the order in which imports begin.

    `sys.modules` has the order in which imports ended. Repeating imports in that order would start
    circular imports at a different module.
    """

    def __init__(self) -> None:
        self.begun: dict[str, None] = {}

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        self.begun[name] = None


_watches: list[ImportWatch] = []
# Freeing a watch writes to the name of every module, which are on 500 shared pages after `import
# torch`: the kernel would copy them all.
_ended: list[ImportWatch] = []


def watch_children() -> None:
    """Make the workers that this process forks from now on record their imports."""
    origin_of(os.__file__)  # fills its cache, so that workers need not
    _watches[:] = [ImportWatch()]


def begin_watch() -> None:
    """Called in a worker, before user code."""
    for watch in _watches:
        watch.begin()


def end_watch() -> tuple[list[str], float] | None:
    """The modules imported so far, and the seconds since the watch began. None if there are none,
    there is no watch, or this was called before."""
    if not _watches:
        return None
    watch = _watches.pop()
    _ended.append(watch)
    took_s = time.perf_counter() - watch.began_s
    names = watch.end()
    return (names, took_s) if names else None


def checked(names: object, took_s: object) -> tuple[list[str], float]:
    """Check a worker's message about its imports and their duration. Raises ValueError."""
    if not isinstance(took_s, float) or not 0 <= took_s < math.inf:
        raise ValueError(f"not a number of seconds: {took_s!r:.100}")
    if not isinstance(names, list) or len(names) > MOST_MODULES:
        raise ValueError(f"not a list of at most {MOST_MODULES:,} modules")
    for name in names:
        if not _is_name(name):
            raise ValueError(f"not the name of a module: {name!r:.100}")
    return names, took_s


def _is_name(name: object) -> bool:
    """True if it is the dotted name of a module other than `__main__`."""
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not name.isascii():
        return False
    parts = name.split(".")
    return all(part.isidentifier() for part in parts) and "__main__" not in parts


def _is_of_use(name: str, module: ModuleType | None) -> bool:
    """Whether an import of `name` in another process gives this module: it is not an alias, not an
    object in place of a module, and not part of the user's code."""
    spec = getattr(module, "__spec__", None)
    if getattr(spec, "name", None) != name or not _is_name(name):
        return False
    place = getattr(spec, "origin", None)
    return (
        name.partition(".")[0] not in _NEVER
        and isinstance(place, str)
        and origin_of(place) in _INSTALLED
    )


def _comes_with_an_import(frame: FrameType | None) -> bool:
    """True if the environment was changed by an import of an installed module, which does it in
    every process, or by holdfast, which does it for every trial."""
    is_librarys = False
    while frame is not None:
        match origin_of(frame.f_code.co_filename):
            case CodeOrigin.IMPORTING:
                return True
            case CodeOrigin.HOLDFAST:
                return not is_librarys
            case CodeOrigin.DISTRIBUTION:
                is_librarys = True
            case CodeOrigin.USER:
                return False
            case CodeOrigin.STANDARD:
                pass
        frame = frame.f_back
    return False
