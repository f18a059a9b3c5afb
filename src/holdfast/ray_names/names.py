"""The names of Ray: where each is here, and whether it is the same, different or missing.

The tables are in `compat/names.toml`. `Finder` serves the modules of `ray`, and
`compat/ray_path.py:OtherPaths` those paths of Ray below `holdfast` that holdfast itself does not
have.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, Final, Literal, NoReturn, Union

from holdfast.compat import ray_path
from holdfast.compat.advice import instead, table, tables
from holdfast.dataclass import dataclass
from holdfast.errors import TuneError
from holdfast.lazy import missing as missing_here

RAY: Final = "ray"
OURS: Final = "holdfast"
PAGE: Final = "docs/differences.md"
NOT_YET: Final = "not-there-yet"
_TASKS: Final = "tasks-actors-and-what-else-is-in-ray"
_SECTIONS: Final = {"": _TASKS, "data": "datasets", "data.preprocessors": "datasets"}
# The library itself, of which Ray has a copy.
CLOUDPICKLE: Final = "cloudpickle"
# Ray keeps each library's search in a package of its own, with a module in it.
_SEARCH_PACKAGES: Final = (
    *("ax", "bayesopt", "bohb", "hebo", "hyperopt", "nevergrad", "optuna", "zoopt"),
    *("basic_variant", "concurrency_limiter", "repeater"),
)
# Where a name without an entry of its own is looked up.
_ALSO: Final = {"air": "train", "train.base_trainer": "train", "tune.experiment": "tune"}

# -- where a name is ------------------------------------------------------------------------------


@cache
def own_modules() -> frozenset[str]:
    """The modules of holdfast whose names are those of Ray's module with the same path."""
    return frozenset({"", *tables()["own"].split()})


@cache
def constants(path: str) -> Mapping[str, object]:
    """The names that `ray.path` has as constants."""
    return {name: _constant(value) for name, value in table("constants").get(path, {}).items()}


def _constant(value: Any) -> object:
    if isinstance(value, dict):
        return SimpleNamespace(**value)
    return os.path.expanduser(value)


@cache
def aliases() -> Mapping[str, tuple[str, Mapping[str, str] | None]]:
    """The module of each other path, with the names there of those that it has; None for all."""
    found: dict[str, str] = dict(table("paths"))
    for name in _SEARCH_PACKAGES:
        found[f"tune.suggest.{name}"] = found[f"tune.search.{name}"]
        for package in ("search", "suggest"):
            found[f"tune.{package}.{name}.{name}_search"] = found[f"tune.search.{name}"]
    found["tune.search.bohb.bohb_search"] = found["tune.search.bohb"]
    return {path: _parsed(home) for path, home in found.items()}


def _parsed(home: str) -> tuple[str, Mapping[str, str] | None]:
    module, colon, listed = home.partition(":")
    pairs = (name.partition("=") for name in listed.split())
    return module, {name: other or name for name, _, other in pairs} if colon else None


def home_of(path: str) -> tuple[str, Mapping[str, str] | None]:
    """The path of the module that has the names of `path`, and which; None for all."""
    module, names = aliases().get(path, (path, None))
    if module in own_modules():
        return module, names
    return home_of(module) if names is None and module != path else (module, names)


def name_at(path: str, name: str) -> tuple[str, str]:
    """The path of the module that has `ray.path.name`, and the name there."""
    module, names = home_of(path)
    return module, name if names is None else names.get(name, name)


@cache
def served() -> frozenset[str]:
    """The paths of all modules that have a name."""
    return frozenset({*own_modules(), *aliases(), *table("constants")})


# -- what a name is -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Missing:
    """A replacement, and the section of PAGE that has more."""

    use: str
    section: str


@cache
def packages() -> Mapping[str, Missing]:
    """The packages of Ray of which holdfast has nothing. Each of their names can be imported."""
    return {
        path: Missing(one["use"], one["section"])
        for one in tables()["package"]
        for path in one["paths"].split()
    }


def package_of(path: str) -> Missing | None:
    """The replacement of the module's package, if holdfast has nothing of it."""
    parts = path.split(".")
    inner = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((packages()[name] for name in inner if name in packages()), None)


def missing(path: str, name: str) -> Missing | None:
    """The replacement of a name of Ray that holdfast does not have; None if it is not known."""
    package = package_of(f"{path}.{name}".lstrip("."))
    if package is not None:
        return package
    use = instead("instead", path, name)
    return None if use is None else Missing(use, _SECTIONS.get(path, NOT_YET))


Kind = Literal["same", "differs", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`text` says what differs, or what to use instead; `section` is one of PAGE."""

    kind: Kind
    text: str = ""
    section: str = ""

    @classmethod
    def of(cls, absent: Missing) -> State:
        """The state of a name that holdfast does not have."""
        return cls(kind="missing", text=f"use {absent.use}", section=absent.section)

    @property
    def link(self) -> str:
        return f"{PAGE}#{self.section}" if self.section else ""


@cache
def differences() -> Mapping[str, State]:
    """The names that differ. The first sentence for a name counts."""
    found: dict[str, State] = {}
    for one in tables()["differs"]:
        for name in one["names"].split():
            state = State(kind="differs", text=one["text"], section=one["section"])
            found.setdefault(name, state)
    return found


def state_of(path: str, name: str, *, is_here: bool) -> State | None:
    """The state of `ray.path.name`; None for a name that Ray does not have, as far as known.

    `is_here`: holdfast has it.
    """
    module, other = name_at(path, name)
    if not is_here:
        absent = missing(path, name) or missing(module, other)
        if absent is None:
            return None
        return State.of(absent)
    for full in (f"{path}.{name}", f"{module}.{other}", f"{_ALSO.get(module, module)}.{other}"):
        if (found := differences().get(full.lstrip("."))) is not None:
            return found
    if lacking := _lacking(module, other):
        return State(kind="differs", text=lacking, section=NOT_YET)
    return State(kind="same")


def _lacking(module: str, name: str) -> str:
    """The parameters that it does not have here; "" if it has all."""
    return "; ".join(f"no {one}=: {use}" for one, use in parameters(module, name).items())


def parameter_text(path: str, name: str, parameter: str) -> str:
    """The replacement of a parameter that `ray.path.name` does not have here; "" if not known."""
    return parameters(*name_at(path, name)).get(parameter, "")


def parameters(module: str, name: str) -> Mapping[str, str]:
    """The parameters of Ray's that a name of `ray.module` does not have here, with what to write
    instead."""
    found: dict[str, str] = {}
    for where in (_ALSO.get(module, module), module):
        found |= table("parameters").get(f"{where}.{name}".lstrip("."), {})
    return found


# -- names that are missing -----------------------------------------------------------------------


class NotInHoldfast(TuneError, AttributeError):
    """The script uses a name of Ray that holdfast does not have."""


def text_of(name: str, missing: Missing) -> str:
    """The message for a name such as `ray.remote`."""
    return (
        f"{name} is not in holdfast, which stands in for Ray here. Use {missing.use} "
        f"({PAGE}#{missing.section})"
    )


class Placeholder:
    """A name that can be imported and mentioned. Each use raises NotInHoldfast."""

    def __init__(self, name: str, missing: Missing) -> None:
        """`name` is the full name, such as `ray.remote`."""
        self.__dict__.update(_name=name, _missing=missing)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # asked by Python and by libraries, of any object
            raise AttributeError(name)
        self._fail()

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._fail()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        self._fail()

    def __instancecheck__(self, instance: object) -> NoReturn:
        self._fail()

    def __subclasscheck__(self, subclass: object) -> NoReturn:
        self._fail()

    def __iter__(self) -> NoReturn:
        self._fail()

    def __add__(self, other: object) -> NoReturn:  # DEFAULT_LOGGERS + (WandbLogger,)
        self._fail()

    __radd__ = __add__

    def __setattr__(self, name: str, value: object) -> NoReturn:
        self._fail()

    def __getitem__(self, _: object) -> Placeholder:
        return self  # in an annotation

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # in an annotation  # noqa: UP007

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __repr__(self) -> str:
        return f"<{self._name}, which is not in holdfast>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name, self._missing)

    def _fail(self) -> NoReturn:
        raise NotInHoldfast(text_of(self._name, self._missing))


# -- modules --------------------------------------------------------------------------------------


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
    """True if there is a module for `ray.path`."""
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
    return _spec(name) if path in served() and path not in own_modules() else None


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
            return sorted({*self._listed, *constants(self._path)})
        home = _module(self._home)
        own = [] if home is None else getattr(home, "__all__", ())
        return sorted({*own, *constants(self._path)})

    def get(self, module: ModuleType, name: str) -> Any:
        """Raises AttributeError for a name that Ray's module does not have."""
        if name == "__all__":
            return self.all()
        if name in (known := constants(self._path)):
            return known[name]
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
            other = table("older").get(f"{self._home}.{name}", other)
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
    if path in served() and path not in own_modules():
        return None
    name = f"{OURS}.{path}".rstrip(".")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        return None
