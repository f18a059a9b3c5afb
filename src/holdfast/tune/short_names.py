"""Algorithms by their short names, as in a settings file or on a command line."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from holdfast.trial.absent import near_text
from holdfast.trial.errors import InvalidConfig


def named(name: object, known: Mapping[str, str], package: str, what: str) -> Any:
    """The class of `package` that `known` lists under a name, ignoring case.

    Raises InvalidConfig for an unknown name; the message lists similar ones.
    """
    found = known.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        near = near_text([name], known) if isinstance(name, str) else ""
        raise InvalidConfig(f"there is no {what} {name!r}, only {', '.join(known)}.{near}")
    return getattr(import_module(package), found)
