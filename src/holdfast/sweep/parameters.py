"""The parameters of a sweep as a search space: W&B's words, and those of `tune`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.sweep.node import Node
from holdfast.sweep.reading import MOST_VALUES
from holdfast.trial import space
from holdfast.trial.space import Normal

_WANDB = ("value", "values", "distribution", "min", "max", "q", "mu", "sigma", "probabilities")
_OURS: Mapping[str, Callable[..., Any]] = {
    name: getattr(space, name)
    for name in (
        *("uniform", "quniform", "loguniform", "qloguniform", "randint", "qrandint"),
        *("lograndint", "qlograndint", "randn", "qrandn"),
    )
}
_OF_LISTS = {"choice": space.choice, "grid_search": space.grid_search}
_WORDS = (*_WANDB, *_OURS, *_OF_LISTS, "parameters")


def space_of(parameters: Node, *, is_grid: bool) -> dict[str, Any]:
    """The search space. With `is_grid` each list of values is a grid. Raises InvalidConfig."""
    return {name: _parameter(node, is_grid=is_grid) for name, node in parameters.table().items()}


def domain_of(node: Node) -> Any:
    """One domain, or a value. Raises InvalidConfig."""
    return _parameter(node, is_grid=False)


def _parameter(node: Node, *, is_grid: bool) -> Any:
    if not node.is_table:
        if isinstance(node.value, list):
            node.fail(
                "is a list: write {values: [...]} to vary it, or {value: [...]} for the list"
            )
        return node.value
    _check_supported(node.table())
    table = node.table(_WORDS)
    ours = [name for name in table if name in _OURS or name in _OF_LISTS]
    if "parameters" in table:
        _alone(node, table, "parameters")
        return space_of(table["parameters"], is_grid=is_grid)
    if not ours:
        return _wandb(node, table, is_grid=is_grid)
    _alone(node, table, ours[0])
    if is_grid and ours[0] != "grid_search":
        node.fail(f"{ours[0]} has no grid: with method grid, every parameter has values")
    return _our_domain(ours[0], table[ours[0]])


def _check_supported(table: Mapping[str, Node]) -> None:
    """Refuse what W&B has and this has not, before what belongs to it is unknown here."""
    for name, node in table.items():
        kind = node.value if name == "distribution" else name
        if name in ("distribution", "probabilities") and kind in _MISSING:
            node.fail(f"{kind} is not supported. {_MISSING[kind]}")


def _alone(node: Node, table: Mapping[str, Node], name: str) -> None:
    if len(table) > 1:
        others = ", ".join(other for other in table if other != name)
        node.fail(f"{name} says everything: remove {others}")


def _our_domain(name: str, node: Node) -> Any:
    with node.blamed():
        if name in _OF_LISTS:
            node.items()
            return _OF_LISTS[name](node.plain())
        if node.is_table:
            return _OURS[name](**node.plain())
        return _OURS[name](*(item.number() for item in node.items()))


def _wandb(node: Node, table: Mapping[str, Node], *, is_grid: bool) -> Any:
    if not table:
        node.fail("is empty: write value, values, or min and max")
    kind = _distribution(node, table)
    if is_grid and kind not in ("constant", "categorical", "int_uniform"):
        node.fail(f"{kind} has no grid: with method grid, every parameter has values")
    needed, optional = _NEEDS[kind]
    for name, given in table.items():
        if name != "distribution" and name not in (*needed, *optional):
            given.fail(f"does not belong to {kind}, which has {', '.join((*needed, *optional))}")
    if missing := [name for name in needed if name not in table]:
        node.fail(f"{kind} needs {' and '.join(missing)}")
    with node.blamed():
        if kind == "constant":
            return table["value"].plain()
        if kind == "categorical":
            table["values"].items()
            values = table["values"].plain()
            return space.grid_search(values) if is_grid else space.choice(values)
        if is_grid:
            return space.grid_search(_between(*(table[name].whole() for name in _BOUNDS)))
        numbers = {n: g.number() for n, g in table.items() if n != "distribution"}
        return _MAKE[kind](**{_ARGUMENTS.get(name, name): n for name, n in numbers.items()})


def _between(low: int, high: int) -> list[int]:
    """The whole numbers that a grid of int_uniform has, as in W&B."""
    if not low <= high < low + MOST_VALUES:
        raise ValueError(f"{low} to {high} is not a grid of 1 to {MOST_VALUES:,} values")
    return list(range(low, high + 1))


def _distribution(node: Node, table: Mapping[str, Node]) -> str:
    """The distribution that is named, else the one that W&B infers."""
    if (given := table.get("distribution")) is not None:
        return given.choice(*_NEEDS)
    if "value" in table:
        return "constant"
    if "values" in table:
        return "categorical"
    if "min" not in table and "max" not in table:
        node.fail("says neither value, values, nor min and max")
    bounds = [table[name].number() for name in ("min", "max") if name in table]
    are_whole = all(isinstance(bound, int) for bound in bounds)
    return "int_uniform" if are_whole else "uniform"


_BOUNDS = ("min", "max")
_NEEDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "constant": (("value",), ()),
    "categorical": (("values",), ()),
    **dict.fromkeys(
        ("uniform", "int_uniform", "log_uniform", "log_uniform_values"), (_BOUNDS, ())
    ),
    **dict.fromkeys(("q_uniform", "q_log_uniform", "q_log_uniform_values"), (_BOUNDS, ("q",))),
    "normal": ((), ("mu", "sigma")),
    "q_normal": ((), ("mu", "sigma", "q")),
}
_ARGUMENTS = {"min": "low", "max": "high"}


def _multiples(low: float, high: float, q: float, *, log: bool) -> Any:
    """Multiples of q between the bounds: whole numbers if q is one, as in W&B."""
    if isinstance(q, int) and q > 0:
        wholes = space.qlograndint if log else space.qrandint
        return wholes(math.ceil(low), math.floor(high), q)
    return (space.qloguniform if log else space.quniform)(low, high, q)


# Bounds of log_uniform and q_log_uniform are exponents of e, as in W&B.
_MAKE: Mapping[str, Callable[..., Any]] = {
    "uniform": lambda low, high: space.uniform(low, high),
    "q_uniform": lambda low, high, q=1: _multiples(low, high, q, log=False),
    "int_uniform": lambda low, high: space.randint(low, high + 1),
    "log_uniform": lambda low, high: space.loguniform(math.exp(low), math.exp(high)),
    "log_uniform_values": lambda low, high: space.loguniform(low, high),
    "q_log_uniform": lambda low, high, q=1: _multiples(math.exp(low), math.exp(high), q, log=True),
    "q_log_uniform_values": lambda low, high, q=1: _multiples(low, high, q, log=True),
    "normal": lambda mu=0.0, sigma=1.0: space.randn(mu, sigma),
    "q_normal": lambda mu=0.0, sigma=1.0, q=1: Normal(mean=mu, sd=sigma, q=q),
}
_MISSING: Mapping[str, str] = {
    **dict.fromkeys(
        ("inv_log_uniform", "inv_log_uniform_values"),
        "Use log_uniform_values for the inverse, and compute 1/x in the script",
    ),
    **dict.fromkeys(
        ("log_normal", "q_log_normal"), "Use normal, and compute exp(x) in the script"
    ),
    **dict.fromkeys(("beta", "q_beta"), "Use uniform"),
    **dict.fromkeys(
        ("categorical_w_probabilities", "probabilities"),
        "Repeat a value in values to make it more likely",
    ),
}
