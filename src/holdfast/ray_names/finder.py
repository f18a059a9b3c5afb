"""Serves the modules of Ray, and Ray's module paths below `holdfast`, from the table in
`holdfast.ray_names.paths`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from holdfast import ray_path
from holdfast.lazy import missing as missing_here
from holdfast.ray_names.missing import NOT_YET, PAGE, missing, package_of
from holdfast.ray_names.paths import CLOUDPICKLE, CONSTANTS, OLDER, OWN, home_of, served
from holdfast.ray_names.placeholder import Placeholder

RAY = "ray"
OURS = "holdfast"


class Finder:
    """The finder of `ray` and its submodules."""

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Raises ModuleNotFoundError for a module of Ray that is not served."""
        root, _, rest = name.partition(".")
        if root != RAY:
            return None
        if not is_served(rest):
            raise _not_found(name)
        return _spec(name)


FINDER = Finder()


def _not_found(name: str) -> ModuleNotFoundError:
    """The error for `import name`, and for `from ... import name` if no module has that name."""
    module, _, last = name.rpartition(".")
    return ModuleNotFoundError(
        f"No module named {name!r} in holdfast, which stands in for Ray here, and no name "
        f"{last!r} in {module!r} ({PAGE}#{NOT_YET})",
        # The name of the module that was asked, as for other names that cannot be imported: Python
        # would hide an error that names what is imported.
        name=module,
    )


def is_served(path: str) -> bool:
    """Whether there is a module for `ray.path`."""
    return path in served() or package_of(path) is not None


def take_over() -> ModuleType:
    """Serve `ray` and its submodules from now on. Returns `ray`. Raises RayAlreadyImported."""
    ray_path.check_not_imported()
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
        sys.modules.pop(RAY, None)  # the package in `ray_path.FOLDER`, which calls this
    return import_module(RAY)


def other_path_spec(name: str) -> ModuleSpec | None:
    """The spec for a path of Ray below `holdfast` where holdfast has no module of its own."""
    path = name.partition(".")[2]
    return _spec(name) if path in served() and path not in OWN else None


def _spec(name: str) -> ModuleSpec:
    return ModuleSpec(name, _LOADER, origin=__file__, is_package=True)


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        root, _, path = module.__name__.partition(".")
        names = Names(root, path)
        vars(module).update(
            __getattr__=lambda name: names.get(module, name),
            __dir__=names.all,
            __doc__=f"Names of Ray's module {RAY}{path and '.'}{path}, from holdfast.",
        )


_LOADER = _Loader()


class Names:
    """The names of one module."""

    def __init__(self, root: str, path: str) -> None:
        self._root, self._path = root, path
        self._home, self._listed = home_of(path)

    def all(self) -> list[str]:
        """Those that can be imported, in order."""
        if self._listed is not None:
            return sorted({*self._listed, *CONSTANTS.get(self._path, {})})
        home = _module(self._home)
        own = [] if home is None else getattr(home, "__all__", ())
        return sorted({*own, *CONSTANTS.get(self._path, {})})

    def get(self, module: ModuleType, name: str) -> Any:
        """Raises AttributeError for a name that Ray's module does not have."""
        if name == "__all__":
            return self.all()
        if name in (constants := CONSTANTS.get(self._path, {})):
            return constants[name]
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        inner = f"{self._path}.{name}".lstrip(".")
        if package_of(self._path) is None and is_served(inner):
            return import_module(f"{self._root}.{inner}")
        found = vars(module)[name] = self._find(name)
        return found

    def _find(self, name: str) -> Any:
        # Scripts import names from wherever Ray's own modules import them.
        other = name if self._listed is None else self._listed.get(name, name)
        if self._root == RAY:
            other = OLDER.get(f"{self._home}.{name}", other)
        path, colon, inner = other.partition(":")
        home = _module(path if colon else self._home) if other else None
        if home is not None and (inner or other) in getattr(home, "__all__", vars(home)):
            return getattr(home, inner or other)
        absent = missing(self._path, name) or missing(self._home, other or name)
        if absent is None:
            module = f"{self._root}.{self._path}".rstrip(".")
            where = " in holdfast, which stands in for Ray here" if self._root == RAY else ""
            raise AttributeError(f"module {module!r} has no attribute {name!r}{where}", name=name)
        if self._root == OURS:
            raise missing_here(f"{OURS}.{self._home}".rstrip("."), other)
        return Placeholder(".".join(filter(None, (RAY, self._path, name))), absent)


def _module(path: str) -> ModuleType | None:
    """The module of holdfast; None if it does not have it."""
    if path == CLOUDPICKLE:
        return import_module(path)
    if path in served() and path not in OWN:
        return None
    name = f"{OURS}.{path}".rstrip(".")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        return None
