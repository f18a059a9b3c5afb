"""Algorithms by their short names, as a setting or a command line gives them."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.trial.absent import near_text
from holdfast.trial.errors import InvalidConfig


def home_of(name: object, known: Mapping[str, str], what: str) -> str:
    """What stands in `known` for a name, in whatever case. Raises InvalidConfig for one that is
    not there, which is told with those that are near."""
    found = known.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        near = near_text([name], known) if isinstance(name, str) else ""
        raise InvalidConfig(f"there is no {what} {name!r}, only {', '.join(known)}.{near}")
    return found
