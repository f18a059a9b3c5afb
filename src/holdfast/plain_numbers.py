"""The one definition of a number in settings: those of other libraries become Python's own.

So every check of a setting, JSON and the journal see only int, float and bool.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from numbers import Complex, Integral, Number, Real
from typing import Any, Final, ParamSpec, TypeGuard, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=type)


class Unset(int):
    """The default of a setting, to be told from the same number that a user has given."""


_OWN: Final = frozenset({type(None), bool, int, float, str, bytes, dict, list, tuple, Unset})


def plain_number(value: Any) -> Any:
    """A number of NumPy, torch and the like (also an array without dimensions), a Decimal, a
    Fraction or an enum's number as int, float or bool; any other value unchanged."""
    if type(value) in _OWN:
        return value
    number: Any = value.item() if hasattr(type(value), "ndim") and value.ndim == 0 else value
    if isinstance(number, (bool, float)):
        return number if isinstance(number, bool) else float(number)
    if isinstance(number, Integral):
        return int(number)
    # Of the standard library's numbers only a Decimal, which few scripts import, is not Complex.
    is_decimal = isinstance(number, Number) and not isinstance(number, Complex)
    if not is_decimal and not isinstance(number, Real):
        return value
    real = float(number)
    return int(real) if real.is_integer() and real == number else real


def is_number(value: object) -> TypeGuard[int | float]:
    """True for an int or a float: a bool is neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[int | float]:
    """True for a number that is neither NaN nor infinite."""
    return is_number(value) and math.isfinite(value)


def finite_number(value: object) -> float | None:
    """The value as a float; None if it is not a finite number."""
    return float(value) if is_finite(value) else None


def is_count(value: object) -> TypeGuard[int]:
    """True for an int: a bool is not one."""
    return isinstance(value, int) and not isinstance(value, bool)


def takes_numbers(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function: numbers among its arguments arrive as Python's own."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        plain: Any = {name: plain_number(value) for name, value in kwargs.items()}
        return call(*map(plain_number, args), **plain)

    return called


def made_of_numbers(kind: C) -> C:
    """Decorate a class in the same way: its constructor."""
    kind.__init__ = takes_numbers(kind.__init__)  # type: ignore[misc]
    return kind
