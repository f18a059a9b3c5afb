"""Lightning comes as two packages whose classes do not mix: `lightning.pytorch` and
`pytorch_lightning`. Which of them does a script use?"""

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
    "lightning.pytorch": Framework(
        title="Lightning",
        module="lightning",
        extra="lightning",
        minimum="2.2",
        distributions=("lightning",),
    ),
    "pytorch_lightning": Framework(
        title="PyTorch Lightning",
        module="pytorch_lightning",
        extra="lightning",
        minimum="2.2",
        distributions=("pytorch-lightning",),
    ),
}

# Packages that are imported for our sake only: they say nothing of what the script uses.
_ours: set[str] = set()


@contextmanager
def for_us(package: str) -> Iterator[None]:
    """Around our own imports from one of the two.

    Raises ImportError where it is missing, or too old.
    """
    _LIBRARIES[package].check()
    if package not in sys.modules:
        _ours.add(package)
    yield


def home() -> ModuleType:
    """Our classes for the package that this process has imported, or else could import.

    Raises ImportError where there is none of them.
    """
    found = _used() or [name for name in _HOMES if find_spec(name.partition(".")[0])]
    package = found[0] if found else "lightning.pytorch"
    _LIBRARIES[package].check()  # before torch is missed, which comes with it
    return import_module(_HOMES[package])


def _used() -> list[str]:
    return [name for name in _HOMES if name in sys.modules and name not in _ours]


class Fitting(ABCMeta):
    """A class that makes objects of the package that the script has imported by then.

    It may have been imported before that package was, and stand for the other one. Not for
    subclasses of a user's, who has chosen; nor for what is unpickled.
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
    """What Lightning has logged, as numbers."""
    return {
        name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()
    }
