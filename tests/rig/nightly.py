"""The nightly tier: `scripts/test` runs the first tests of a series, `scripts/nightly` all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, TypeVar

import pytest

C = TypeVar("C")


def rest_nightly(count: int, series: Iterable[Any]) -> list[Any]:
    """Arguments for `parametrize`: all but the first `count` run only in the nightly tier."""
    values = list(series)
    return [*values[:count], *(_nightly(value) for value in values[count:])]


def mostly_nightly(*kept: str) -> Callable[[type[C]], type[C]]:
    """For a class that inherits a contract: all its tests but those run only in the nightly
    tier."""

    def marked(tests: type[C]) -> type[C]:
        for name in dir(tests):
            test = getattr(tests, name)
            if name.startswith("test_") and name not in kept:
                copy = FunctionType(
                    test.__code__, test.__globals__, name, test.__defaults__, test.__closure__
                )
                copy.__dict__.update(test.__dict__)
                setattr(tests, name, pytest.mark.nightly(copy))
        return tests

    return marked


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
