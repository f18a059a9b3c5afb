"""Converts search spaces and configs to Optuna's terms."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from holdfast.foreign import is_of
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.parameters import (
    Assignment,
    Parameter,
    Parameters,
    Same,
    inside,
)
from holdfast.trial.space import Categorical, Float, Integer, same
from holdfast.trial.values import spread
from holdfast.tune.search.flat_parameters import nested

DISTRIBUTIONS: Final = "optuna.distributions"
_NEARLY: Final = 1e-9
_AS_THEY_ARE = (type(None), bool, int, float, str)


class NamedParameters:
    """Configs of a space in Optuna's own types: nested under names such as `net/width`.

    `distributions` are the parameters; None if a function chooses them as it runs.
    """

    def __init__(self, distributions: Mapping[str, Any] | None) -> None:
        self.distributions = distributions

    def config(self, assignment: Assignment) -> dict[str, Any]:
        return nested(assignment.items())

    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.distributions is None:
            return config
        flat = spread(config)
        return {name: flat[name] for name in self.distributions if name in flat}

    def assignment(self, config: Mapping[str, Any], label: str, alike: Same) -> Assignment:
        flat = spread(config)
        for name in flat if self.distributions is not None else ():
            if name not in self.distributions:  # type: ignore[operator]
                known = ", ".join(map(repr, self.distributions or ()))
                raise InvalidSearchSpace(
                    f"{label}: {name} is not in the search space, only {known}"
                )
        return flat

    def fit(self, assignment: Assignment, who: str) -> Assignment:
        return assignment

    def complete(self, assignment: Assignment, rng: random.Random) -> Assignment:
        """Leaves out missing values: the sampler adds them."""
        return assignment


class Asks(Protocol):
    """Asks an Optuna trial for its parameters."""

    @property
    def asked(self) -> Mapping[str, str]:
        """The distributions, as JSON, of those that no space defines."""

    def ask(self, trial: Any) -> Assignment:
        """The values of all parameters."""

    def fixed(self, assignment: Assignment) -> dict[str, Any]:
        """`assignment` in Optuna's values."""


class AsksParameters:
    """For holdfast's domains: parameters may depend on choices before them."""

    asked: Mapping[str, str] = MappingProxyType({})

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters.all
        self._distributions = dict(distributions_of(parameters))
        self._choices = {
            one.name: choices_of(one.domain)
            for one in parameters.all
            if isinstance(one.domain, Categorical)
        }

    def ask(self, trial: Any) -> Assignment:
        found: dict[str, Any] = {}
        for parameter in self._parameters:
            name = parameter.name
            if parameter.exists_in(found):
                value = suggested(trial, name, self._distributions[name])
                choices = self._choices.get(name)
                found[name] = value if choices is None else choices.index(value)
        return found

    def fixed(self, assignment: Assignment) -> dict[str, Any]:
        return {name: self._fixed(name, value) for name, value in assignment.items()}

    def _fixed(self, name: str, value: Any) -> Any:
        if name in self._choices:
            return self._choices[name][value]
        distribution = self._distributions[name]
        if distribution.step is None or isinstance(value, int):
            return value
        # Optuna's own multiple differs in the last digit from the one that users see.
        low, step = distribution.low, distribution.step
        return low + round((value - low) / step) * step


class AsksDistributions:
    """For a dict of Optuna's distributions."""

    asked: Mapping[str, str] = MappingProxyType({})

    def __init__(self, distributions: Mapping[str, Any]) -> None:
        self._distributions = distributions

    def ask(self, trial: Any) -> Assignment:
        return {
            name: suggested(trial, name, distribution)
            for name, distribution in self._distributions.items()
        }

    def fixed(self, assignment: Assignment) -> dict[str, Any]:
        return dict(assignment)


class AsksFunction:
    """For a function that asks the trial itself, and returns constants."""

    def __init__(self, define: Callable[[Any], Mapping[str, Any] | None]) -> None:
        self._define = define
        self.asked: dict[str, str] = {}

    def ask(self, trial: Any) -> Assignment:
        constants = self._define(trial)
        self.asked |= {name: _as_json(kind) for name, kind in trial.distributions.items()}
        if constants is not None and not isinstance(constants, Mapping):
            raise InvalidConfig(
                f"the function passed as space must return a dict of constants or None, "
                f"not {constants!r:.100}"
            )
        return {**spread(constants or {}), **trial.params}

    def fixed(self, assignment: Assignment) -> dict[str, Any]:
        return {name: value for name, value in assignment.items() if type(value) in _AS_THEY_ARE}


def _as_json(distribution: Any) -> str:
    """A distribution as Optuna stores it; "" if its choices are not JSON values."""
    from optuna.distributions import distribution_to_json

    try:
        return str(distribution_to_json(distribution))
    except TypeError:
        return ""


def suggested(trial: Any, name: str, distribution: Any) -> Any:
    """The value that an Optuna trial suggests for a parameter with this distribution."""
    kind = type(distribution).__name__
    if kind == "CategoricalDistribution":
        return trial.suggest_categorical(name, distribution.choices)
    suggest = trial.suggest_int if kind == "IntDistribution" else trial.suggest_float
    low, high, log = distribution.low, distribution.high, distribution.log
    return suggest(name, low, high, step=distribution.step, log=log)


def distributions_of(parameters: Parameters) -> Iterator[tuple[str, Any]]:
    """Each parameter's name and distribution. Raises InvalidSearchSpace."""
    for parameter in parameters.all:
        yield parameter.name, distribution_of(parameter)


def distribution_of(parameter: Parameter) -> Any:
    """Optuna's distribution. Raises InvalidSearchSpace, naming the parameter, if there is none."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    domain = parameter.domain
    match domain:
        case Categorical():
            return CategoricalDistribution(choices_of(domain))
        case Float(q=None):
            return FloatDistribution(domain.lower, domain.upper, log=domain.log)
        case Integer(log=True, q=None | 1) | Integer(log=False):
            first, last = domain.nearest(domain.lower), domain.nearest(domain.upper)
            return IntDistribution(first, last, log=domain.log, step=domain.q or 1)
        case Float(log=False):
            low, high = domain.nearest(domain.lower), domain.nearest(domain.upper)
            return FloatDistribution(low, high, step=domain.q)
        case Float() | Integer():
            advice = "omit q, and round in the trainable"
        case _:
            advice = "give it bounds: tune.uniform, or tune.quniform"
    raise InvalidSearchSpace(
        f"{parameter.name}: Optuna has no distribution for {domain}: {advice}"
    )


def as_domains(space: Any, name: str = "") -> Any:
    """The space with a domain in place of each of Optuna's distributions.

    Raises InvalidSearchSpace, naming the key, for a distribution without an equal domain.
    """
    if is_of(space, DISTRIBUTIONS):
        return _domain(space, name)
    if isinstance(space, dict):
        return {key: as_domains(one, inside(name, key)) for key, one in space.items()}
    if isinstance(space, Categorical):
        options = (as_domains(one, f"{name}:{i}") for i, one in enumerate(space.categories))
        return Categorical(categories=tuple(options))
    if type(space) in (list, tuple):
        return type(space)(as_domains(one, f"{name}/{i}") for i, one in enumerate(space))
    return space


def _domain(one: Any, name: str) -> Categorical | Float | Integer:
    if hasattr(one, "choices"):
        return Categorical(categories=tuple(one.choices))
    is_whole, step = isinstance(one.low, int), one.step
    if is_whole and step in (None, 1):
        return Integer(lower=one.low, upper=one.high + 1, log=one.log)
    if step is None:
        return Float(lower=one.low, upper=one.high, log=one.log)
    if abs(one.low / step - round(one.low / step)) > _NEARLY:
        raise InvalidSearchSpace(
            f"{name}: the steps of {one} do not begin at a multiple of {step}: pass a dict of "
            f"distributions alone, or tune.choice([...])"
        )
    if is_whole:
        return Integer(lower=one.low, upper=one.high, q=step)
    return Float(lower=one.low, upper=one.high, q=step)


def choices_of(domain: Categorical) -> tuple[Any, ...]:
    """The values that Optuna chooses from: the categories, or their numbers if it could not store
    or distinguish them."""
    categories = domain.categories
    plain = all(type(value) in _AS_THEY_ARE for value in categories)
    apart = not any(
        same(one, other) for i, one in enumerate(categories) for other in categories[:i]
    )
    itself = all(same(value, value + 0) for value in categories if type(value) is float)
    return categories if plain and apart and itself else tuple(range(len(categories)))
