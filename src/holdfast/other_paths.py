"""The last finder: module paths of Ray below `holdfast`, such as `holdfast.tune.tuner`.

A script that replaces `ray` by `holdfast` imports names from them. It is asked only for modules
that nothing else has found.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Final

_NAMES: Final = "holdfast.ray_names"


class OtherPaths:
    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        if not name.startswith("holdfast.") or name.startswith(_NAMES):
            return None
        found: ModuleSpec | None = import_module(f"{_NAMES}.finder").other_path_spec(name)
        return found


def find_last() -> None:
    """Ask this finder after all others."""
    sys.meta_path.append(OtherPaths())
