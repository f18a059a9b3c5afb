"""The origin of code: Python, an installed distribution, holdfast, or the user."""

from __future__ import annotations

import os
import sys
from enum import Enum, auto
from functools import cache


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
    """Whether the top-level package or module is not the user's. Imports nothing."""
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
    import sysconfig

    paths = sysconfig.get_paths()
    installed = {paths["purelib"], paths["platlib"], *site.getsitepackages()}
    if site.ENABLE_USER_SITE:
        installed.add(site.getusersitepackages())
    names = ("site-packages", "dist-packages")
    installed.update(path for path in sys.path if os.path.basename(path) in names)
    package = sys.modules[__name__.partition(".")[0]].__path__
    return (
        (_prefixes(set(package)), CodeOrigin.HOLDFAST),
        (_prefixes(installed), CodeOrigin.DISTRIBUTION),
        (_prefixes({paths["stdlib"], paths["platstdlib"]}), CodeOrigin.STANDARD),
    )


def _prefixes(folders: set[str]) -> tuple[str, ...]:
    found = {*folders, *map(os.path.realpath, folders)}
    return tuple(sorted(os.path.join(folder, "") for folder in found))
