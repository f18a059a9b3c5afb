"""What a worker imports between its fork and its first report, for the workers that come after it.

A worker's watch begins before user code does. It ends at the first report, or where user code
changes the environment: what is imported from then on may depend on that, and a process that has
not run the user's code would import something else. Only modules of installed distributions are
noted: the user's own may do anything when they are imported, and are imported by the trial alone.
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import suppress
from types import FrameType, ModuleType
from typing import Any, Final

from holdfast.runtime.provenance import CodeOrigin, origin_of

# TensorFlow, which has the most, imports 3,200.
MOST_MODULES: Final = 20_000
LONGEST_NAME: Final = 200

# What libraries set in their calls, and read when they are used, not when they are imported.
_OF_CALLS: Final = (b"PL_", b"ACCELERATE_", b"FSDP_", b"TORCHELASTIC_")
# They start when they are imported what no fork survives.
_NEVER: Final = frozenset({"mpi4py", "horovod"})
_INSTALLED: Final = (CodeOrigin.STANDARD, CodeOrigin.DISTRIBUTION, CodeOrigin.HOLDFAST)


class ImportWatch:
    """One worker's: made before the fork, begun after it."""

    def __init__(self) -> None:
        self._known = frozenset(sys.modules)
        self._path = list(sys.path)
        self._order = _Order()
        self._seen: list[str] | None = None
        self._setters = os.putenv, os.unsetenv
        self.began_s = 0.0

    def begin(self) -> None:
        """From now on a change of the environment may end the watch: `os.environ` calls what
        stands under these two names in `os`."""
        self.began_s = time.perf_counter()
        sys.meta_path.insert(0, self._order)
        os.putenv, os.unsetenv = self._put, self._unset

    def end(self) -> list[str]:
        """The names of what was imported, in the order in which the imports began."""
        self._stop()
        # With another path before the one that all workers begin with, names mean other modules.
        if sys.path[: len(self._path)] != self._path:
            return []
        seen = self._seen or []
        return [name for name in seen if _is_of_use(name, sys.modules.get(name))][:MOST_MODULES]

    def _stop(self) -> None:
        if self._seen is None:
            os.putenv, os.unsetenv = self._setters
            with suppress(ValueError):  # user code has taken it out
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
    """Stands before the finders of modules, finds none, and notes what is looked for, and when.

    `sys.modules` has modules in the order in which they were complete. Imported in that order,
    those that import each other in a circle would begin where they never have.
    """

    def __init__(self) -> None:
        self.begun: dict[str, None] = {}

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        self.begun[name] = None


_watches: list[ImportWatch] = []


def watch_children() -> None:
    """The workers that this process forks from now on note what they import."""
    origin_of(os.__file__)  # what it looks up for that, it looks up here and not in each worker
    _watches[:] = [ImportWatch()]


def begin_watch() -> None:
    """In a worker, before user code."""
    for watch in _watches:
        watch.begin()


def end_watch() -> tuple[list[str], float] | None:
    """What was imported up to here, and in how many seconds since the watch began. None where that
    was nothing or was asked before, or nobody watches."""
    if not _watches:
        return None
    watch = _watches.pop()
    took_s = time.perf_counter() - watch.began_s
    names = watch.end()
    return (names, took_s) if names else None


def checked(names: object, took_s: object) -> tuple[list[str], float]:
    """What a worker says that it has imported, and for how long it was watched. Raises ValueError
    for what cannot be that."""
    if not isinstance(took_s, float) or not 0 <= took_s < math.inf:
        raise ValueError(f"not a number of seconds: {took_s!r:.100}")
    if not isinstance(names, list) or len(names) > MOST_MODULES:
        raise ValueError(f"not a list of at most {MOST_MODULES:,} modules")
    for name in names:
        if not _is_name(name):
            raise ValueError(f"not the name of a module: {name!r:.100}")
    return names, took_s


def _is_name(name: object) -> bool:
    """A dotted name, of something that is imported and not run."""
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not name.isascii():
        return False
    parts = name.split(".")
    return all(part.isidentifier() for part in parts) and "__main__" not in parts


def _is_of_use(name: str, module: ModuleType | None) -> bool:
    """Whether importing `name` elsewhere gives this module: it is no alias, no object that stands
    for a module, and no part of the user's code."""
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
    """Whether the environment is changed by an installed module that is being imported, and so
    wherever it is imported, or by holdfast itself, and so for every trial."""
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
