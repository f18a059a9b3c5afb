"""Which of Lightning's two packages a script uses: `lightning.pytorch` or `pytorch_lightning`.

Their classes do not mix.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from holdfast.lazy import Framework

_HOMES = {
    "lightning.pytorch": "holdfast.train.lightning.with_lightning",
    "pytorch_lightning": "holdfast.train.lightning.with_pytorch_lightning",
}
_LIBRARIES = {
    "lightning.pytorch": Framework(title="Lightning", module="lightning", minimum="2.2"),
    "pytorch_lightning": Framework(
        title="PyTorch Lightning", module="pytorch_lightning", extra="lightning", minimum="2.2"
    ),
}

# Packages that only holdfast imported: they do not tell what the script uses.
_ours: set[str] = set()


@contextmanager
def for_us(package: str) -> Iterator[None]:
    """Surrounds holdfast's own imports from one of the two packages.

    Raises ImportError if it is missing, or too old.
    """
    _LIBRARIES[package].check()
    if package not in sys.modules:
        _ours.add(package)
    yield


def home() -> ModuleType:
    """Our classes for the package that this process has imported, or else could import.

    Raises ImportError if neither is installed.
    """
    found = _used() or [name for name in _HOMES if find_spec(name.partition(".")[0])]
    package = found[0] if found else "lightning.pytorch"
    _LIBRARIES[package].check()  # before an error about torch, which comes with it
    return import_module(_HOMES[package])


def _used() -> list[str]:
    return [name for name in _HOMES if name in sys.modules and name not in _ours]


class Fitting(ABCMeta):
    """Metaclass: creating an object uses the package that the script has imported by then.

    The class may have been imported before that package, and belong to the other one. Subclasses
    by users and unpickled objects stay as they are.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return super(Fitting, _fitting(cls)).__call__(*args, **kwargs)


def _fitting(cls: type) -> Any:
    packages = [name for name, where in _HOMES.items() if where == cls.__module__]
    used = _used()
    if not packages or not used or packages[0] in used:
        return cls
    return getattr(import_module(_HOMES[used[0]]), cls.__name__)


def plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The logged metrics as plain numbers."""
    return {
        name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()
    }
