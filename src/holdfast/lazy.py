"""Public names that are imported on first use, so that `import holdfast` is fast."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from itertools import takewhile
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.exports import EXPORTS


class FrameworkMissing(ImportError):
    """An optional library is not installed, or too old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """An optional library. `minimum` is the oldest supported version. `extra` (its packages) and
    `distributions` (the names of those that provide it) default to the name of its module."""

    title: str
    module: str
    extra: str = ""
    minimum: str = ""
    distributions: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise FrameworkMissing, naming the extra or the required version. Imports nothing."""
        if find_spec(self.module) is None:
            raise FrameworkMissing(self.missing(), name=self.module)
        found = self._installed() if self.minimum else None
        if found is not None and _numbers(found) < _numbers(self.minimum):
            raise FrameworkMissing(
                f"{self.title} {found} is too old: {self.minimum} or newer is needed: "
                f"pip install --upgrade {self.requirements()}",
                name=self.module,
            )

    def missing(self, what: str = "", error: ImportError | None = None) -> str:
        """The message that `what` needs this library; `error` is the error of its import."""
        is_absent = error is None or getattr(error, "name", None) == self.module
        verb = "is not installed" if is_absent else f"cannot be imported ({error})"
        fault = f"{what} needs {self.title}, which {verb}" if what else f"{self.title} {verb}"
        packages = self._packages()
        extra = f", or the extra holdfast[{self.extra or self.module}]" if packages else ""
        return f"{fault}: pip install {self.requirements()}{extra}"

    def requirements(self) -> str:
        """The packages of the extra, for a shell. Not `holdfast[extra]`: holdfast is on no index,
        where that name could belong to somebody else."""
        from shlex import quote

        return " ".join(map(quote, self._packages() or [self.module]))

    def _packages(self) -> list[str]:
        """The packages of the extra; none if there is no such extra."""
        from importlib.metadata import PackageNotFoundError, requires

        try:
            lines = [line.partition(";") for line in requires("holdfast") or ()]
        except PackageNotFoundError:  # a tree that is not installed
            lines = []
        extra = self.extra or self.module
        quotes = (f'extra == "{extra}"', f"extra == '{extra}'")
        return [name.strip() for name, _, mark in lines if mark.strip().endswith(quotes)]

    def _installed(self) -> str | None:
        """The installed version; None if no package provides it."""
        from importlib.metadata import PackageNotFoundError, version

        for name in self.distributions or (self.module,):
            try:
                return version(name)
            except PackageNotFoundError:
                continue
        return None


# With TensorFlow, torch or jax below it.
KERAS = Framework(title="Keras", module="keras", extra="tensorflow", minimum="3")
LIGHTGBM = Framework(title="LightGBM", module="lightgbm", minimum="4")
MATPLOTLIB = Framework(title="matplotlib", module="matplotlib", extra="plots")
OPTUNA = Framework(title="Optuna", module="optuna")
PANDAS = Framework(title="pandas", module="pandas")
PILLOW = Framework(title="Pillow", module="PIL", extra="images")
TENSORFLOW = Framework(
    title="TensorFlow",
    module="tensorflow",
    minimum="2.16",  # Keras 3, whose files are the checkpoints
    distributions=("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos"),
)
XGBOOST = Framework(
    title="XGBoost",
    module="xgboost",
    minimum="2.1",  # older trackers take other arguments
    distributions=("xgboost", "xgboost-cpu"),
)
WEB = Framework(title="Starlette with uvicorn", module="starlette", extra="web")
YAML = Framework(title="PyYAML", module="yaml")
TORCH = Framework(title="PyTorch", module="torch", minimum="2.4")


def _numbers(version: str) -> tuple[int, ...]:
    """`2.16.0rc1` is (2, 16, 0)."""
    parts = ("".join(takewhile(str.isdigit, part)) for part in version.split("."))
    return tuple(int(part) for part in takewhile(bool, parts))


def missing(package: str, name: str) -> AttributeError:
    """The error for a name that `package` does not have: it says what to use instead."""
    module, use = import_module(package), None
    # `from package import module` asks for the attribute before it imports the module.
    if PathFinder.find_spec(f"{package}.{name}", module.__path__) is None:
        from holdfast.compat.advice import instead

        use = instead("instead", package.partition(".")[2], name)
    told = f". Use {use}" if use else ""
    return AttributeError(
        f"module {package!r} has no attribute {name!r}{told}", name=name, obj=module
    )


def lazy(
    package: str, *, needs: Framework | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` for `package`, whose names are in `EXPORTS`.

    A home `other.module:name` there is that module's object `name`, and a home `package.name` is
    a submodule. Reading a name raises ImportError if the framework in `needs` is not installed or
    too old.
    """
    # Modules of Ray's that are inside this one are found (`holdfast.compat.ray_path`).
    vars(import_module(package)).setdefault("__path__", [])
    homes = {name: home for home, listed in EXPORTS[package].items() for name in listed.split()}
    public = sorted(name for name, home in homes.items() if home != f"{package}.{name}")

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise missing(package, name)
        if needs is not None:
            needs.check()
        if home == f"{package}.{name}":
            return import_module(home)
        where, _, other = home.partition(":")
        found = getattr(import_module(where), other or name)
        import_module(package).__dict__[name] = found
        return found

    def names() -> list[str]:
        return sorted(homes)

    return get, names, public
