"""Reads a ConfigurationSpace of ConfigSpace, the library of BOHB's authors. Imports nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.foreign import is_of
from holdfast.trial.domains import Categorical, Float, Integer, Normal
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.values import unwrap_scalar
from holdfast.tune.search.flat_parameters import DependentParameter, FlatParameters, fixed

_UNIFORM: Final = "write a uniform one, or tune.randn(mean, sd)"
Conditions = dict[str, frozenset[int]]


def is_config_space(space: Any) -> bool:
    return is_of(space, "ConfigSpace", "ConfigurationSpace")


def read_config_space(space: Any, who: str) -> FlatParameters:
    """Its hyperparameters, in its order, which has parents first.

    Raises InvalidSearchSpace, naming the hyperparameter, for what `who` cannot search.
    """
    forbidden = _listed(space, "forbidden_clauses", "get_forbiddens")
    if forbidden:
        raise InvalidSearchSpace(
            f"space forbids ({forbidden[0]}), which {who} does not support: report a bad result "
            f"for such a config instead"
        )
    domains = {name: _domain(name, one, who) for name, one in dict(space).items()}
    when: dict[str, Conditions] = {name: {} for name in domains}
    for condition in _listed(space, "conditions", "get_conditions"):
        for child, parent, numbers in _parts(condition, domains, who):
            known = when[child].get(parent, numbers)
            when[child][parent] = known & numbers
    return FlatParameters(
        [
            DependentParameter(name=name, domain=domain, when=tuple(when[name].items()))
            for name, domain in domains.items()
        ],
        who=who,
    )


def _listed(space: Any, attribute: str, method: str) -> list[Any]:
    """An attribute of version 1 of the library, a method before it."""
    found = getattr(space, attribute, None)
    return list(getattr(space, method)() if found is None else found)


def _domain(name: str, one: Any, who: str) -> Float | Integer | Normal | Categorical:
    kind = type(one).__name__.removesuffix("Hyperparameter")
    match kind:
        case "UniformFloat":
            q = getattr(one, "q", None)
            return Float(lower=float(one.lower), upper=float(one.upper), log=one.log, q=q)
        case "UniformInteger":
            return Integer(lower=int(one.lower), upper=int(one.upper) + 1, log=one.log)
        case "Categorical":
            if getattr(one, "weights", None) is not None:
                raise InvalidSearchSpace(
                    f"{name}: {who} has no weights of categories: leave them out"
                )
            return Categorical(categories=tuple(map(unwrap_scalar, one.choices)))
        case "Ordinal":
            return Categorical(categories=tuple(map(unwrap_scalar, one.sequence)))
        case "Constant" | "Unparametrized":
            return fixed(unwrap_scalar(one.value))
        case "NormalFloat" if getattr(one, "lower", None) is None and not one.log:
            return Normal(mean=float(one.mu), sd=float(one.sigma))
        case "NormalFloat" | "NormalInteger":
            raise InvalidSearchSpace(f"{name}: {who} has no {kind} within bounds: {_UNIFORM}")
        case _:
            raise InvalidSearchSpace(f"{name}: {who} has no {kind}: {_UNIFORM}")


def _parts(
    condition: Any, domains: Mapping[str, Any], who: str
) -> Iterator[tuple[str, str, frozenset[int]]]:
    """Each child with a parent and the categories of the parent under which it exists."""
    match type(condition).__name__:
        case "AndConjunction":
            for part in condition.components:
                yield from _parts(part, domains, who)
            return
        case "EqualsCondition":
            values = [condition.value]
        case "InCondition":
            values = list(condition.values)
        case kind:
            raise InvalidSearchSpace(
                f"{condition}: {who} has no {kind}, only EqualsCondition, InCondition and "
                f"AndConjunction"
            )
    child, parent = condition.child.name, condition.parent.name
    domain = domains[parent]
    if not isinstance(domain, Categorical):
        raise InvalidSearchSpace(
            f"{child}: {who} supports conditions on choices only, and {parent} is a number"
        )
    numbers = [i for i, one in enumerate(domain.categories) if one in values]
    yield child, parent, frozenset(numbers)
