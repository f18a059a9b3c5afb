"""The nightly tier: `scripts/test` runs the first tests of a series, `scripts/nightly` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rest_nightly(count: int, series: Iterable[Any]) -> list[Any]:
    """Arguments for `parametrize`: all but the first `count` run only in the nightly tier."""
    values = list(series)
    return [*values[:count], *(_nightly(value) for value in values[count:])]


def _nightly(value: Any) -> Any:
    several = value if isinstance(value, tuple) else (value,)
    return pytest.param(*several, marks=pytest.mark.nightly)


def selected(request: pytest.FixtureRequest, *names: str) -> list[Any]:
    """The values of a parameter (a tuple for several) in the module's tests that will run: what a
    fixture prepares for them all at once."""
    found: dict[Any, None] = {}
    for item in request.session.items:
        given = getattr(item, "callspec", None)
        if item.path == request.path and given is not None and given.params.keys() >= {*names}:
            values = tuple(given.params[name] for name in names)
            found[values if len(names) > 1 else values[0]] = None
    return list(found)
