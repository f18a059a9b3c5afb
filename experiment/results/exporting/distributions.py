"""Converts the domains of a search space, as recorded, to Optuna's distributions.

The records have a space as text (`loguniform(0.001, 0.1)`), so that reading it needs no user code.
The text is parsed as data and never evaluated.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number

# Types that Optuna keeps as categories; values of other types become text.
SIMPLE = (type(None), bool, int, float, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Numbers from `low` to `high`, both included; with a `step`, `low` plus multiples of it."""

    low: float
    high: float
    is_whole: bool = False
    is_log: bool = False
    step: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """One of these values."""

    values: tuple[Any, ...]


Distribution = Numbers | Categories


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributions:
    """The distribution of each parameter that has one; `unknown` are the parameters of which the
    search space does not determine it."""

    known: Mapping[str, Distribution]
    unknown: tuple[str, ...]


def distributions(
    declared: Mapping[str, Distribution | None],
    names: Sequence[str],
    configs: Sequence[Mapping[str, Any]],
) -> Distributions:
    """The distributions of `names`: those `declared`, if all values in `configs` are in them.

    If the space does not determine it (`sample_from`, `randn`, a function that asks an Optuna
    trial), it is the range of the numbers in `configs`. Other values without a domain have none: a
    later trial may bring a value that is in no distribution yet.
    """
    found, unknown = {}, []
    for name in names:
        values = [config[name] for config in configs if name in config]
        made = declared.get(name)
        if made is None or not all(holds(made, value) for value in values):
            unknown += [name] if values else []
            made = _range(values)
        if made is not None:
            found[name] = made
    return Distributions(known=found, unknown=tuple(unknown))


def simple(value: Any) -> Any:
    """A value in the form of a category."""
    return value if type(value) in SIMPLE else str(value)


def holds(made: Distribution, value: Any) -> bool:
    """Whether the distribution contains the value."""
    if isinstance(made, Categories):
        return simple(value) in made.values
    if not is_number(value) or not made.low <= value <= made.high:
        return False
    if made.step is None:
        return not made.is_whole or value == int(value)
    steps: float = (value - made.low) / made.step
    return abs(steps - round(steps)) < 1e-8


def _range(values: Sequence[Any]) -> Numbers | None:
    kinds = {type(value) for value in values}
    if not kinds or not kinds <= {int, float} or not all(map(math.isfinite, values)):
        return None
    # Not whole numbers, even if all are so far: a later trial may bring another one.
    return Numbers(low=min(values), high=max(values))


def parsed(text: str) -> Distribution | None:
    """The distribution of a domain, given as text; None if it has none."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:  # the text of a domain with values that are not plain
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    try:
        given = [ast.literal_eval(argument) for argument in call.args]
        named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    except ValueError:
        return None
    return _of_call(call.func.id, [*given, *named.values()])


def of_optuna(text: str) -> Distribution | None:
    """The distribution that Optuna describes by this JSON; None if it does not say enough."""
    try:
        described = json.loads(text)
        given = described["attributes"]
        if "choices" in given:
            return Categories(values=tuple(dict.fromkeys(map(simple, given["choices"]))))
        return Numbers(
            low=given["low"],
            high=given["high"],
            is_whole=described["name"].startswith("Int"),
            is_log=given["log"],
            step=None if given["log"] else given["step"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _of_call(name: str, given: Sequence[Any]) -> Distribution | None:
    if name in ("choice", "grid_search"):
        values = tuple(dict.fromkeys(simple(value) for value in given[0]))
        return Categories(values=values)
    is_log, is_whole = "log" in name, name.endswith("randint")
    if not (is_whole or name.endswith("uniform")):
        return None
    low, high, *quantum = given
    if is_whole and not quantum:
        return Numbers(low=low, high=high - 1, is_whole=True, is_log=is_log)
    if not quantum:
        return Numbers(low=low, high=high, is_log=is_log)
    return _stepped(low, high, quantum[0], is_whole=is_whole, is_log=is_log)


def _stepped(low: float, high: float, q: float, *, is_whole: bool, is_log: bool) -> Numbers:
    """Multiples of q within the bounds. Optuna has no steps on a logarithmic scale."""
    if is_log:
        return Numbers(low=low, high=high, is_whole=is_whole, is_log=True)
    first, last = math.ceil(low / q - 1e-9) * q, math.floor(high / q + 1e-9) * q
    return Numbers(low=first, high=last, is_whole=is_whole, step=q)
