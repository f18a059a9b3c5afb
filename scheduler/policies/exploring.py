"""How population based training changes a config: it resamples or perturbs each parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number
from holdfast.scheduler.chance import Chance
from holdfast.trial.domains import (
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    Normal,
    below,
)
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.sample_spec import Spec
from holdfast.trial.space import has_user_code, is_grid
from holdfast.trial.values import is_plain, key_name, unwrap_scalar

Path = tuple[str, ...]
ABSENT: Final = object()
# Larger numbers could overflow when they are multiplied.
_HUGE: Final = 1e300


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """How one parameter may change.

    Exactly one of three is set: `values` has those of a list, in its order; `domain` is one of
    holdfast's; `function` is the user's own and returns a value.
    """

    path: Path
    values: tuple[Any, ...] = ()
    domain: Float | Integer | Normal | Categorical | None = None
    function: Callable[[Mapping[str, Any]], Any] | None = None

    @property
    def name(self) -> str:
        return key_name(self.path)

    def draw(self, chance: Chance) -> Any:
        """A new value, independent of the current one. Not for a mutation with a `function`."""
        if self.domain is not None:
            return self.domain.draw(chance)
        return self.values[below(len(self.values), chance)]

    def knows(self, value: object) -> bool:
        """Whether `value` has neighbours, so that `moved` can be called."""
        if self.values:
            return value in self.values
        is_small = is_number(value) and -_HUGE < value < _HUGE
        return is_small and not isinstance(self.domain, Categorical)

    def moved(self, value: Any, chance: Chance, factors: Sequence[float]) -> Any:
        """A neighbour of `value`: the one before or after it in a list, or `value` times a factor.

        If whole numbers are drawn, it stays a whole number and changes by at least 1. A result
        outside the domain becomes the nearest value inside.
        """
        if self.values:
            step = 1 if chance.random() < 0.5 else -1
            place = self.values.index(value) + step
            return self.values[min(max(place, 0), len(self.values) - 1)]
        factor = factors[below(len(factors), chance)]
        product = value * factor
        if isinstance(self.domain, Integer) or (self.function and isinstance(value, int)):
            product = _whole(product, away=factor > 1)
        if isinstance(self.domain, (Float, Integer, Normal)):
            return self.domain.nearest(product)
        return product

    def ask(self, config: Mapping[str, Any]) -> Any:
        """Call the user's function. Raises InvalidConfig if it does not return plain data."""
        assert self.function is not None
        value = unwrap_scalar(self.function(config))
        self.check(value)
        return value

    def check(self, value: object) -> None:
        """Raise InvalidConfig, naming the parameter, if `value` is not plain data."""
        if not is_plain(value):
            raise InvalidConfig(
                f"hyperparam_mutations: {self.name} became {value!r:.80}, but only plain data "
                "(numbers, text, True, False, None, lists and dicts of them) can be stored: use "
                "names or numbers, and make objects from them in the trainable"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A new config; with `asked`, `Population.completed` must complete it."""

    config: Mapping[str, Any]
    asked: Mapping[str, Any] = field(default_factory=dict)


def mutations_of(given: Any) -> tuple[Mutation, ...]:
    """The mutations in `hyperparam_mutations`, one per parameter. Raises InvalidConfig."""
    if not isinstance(given, Mapping):
        raise InvalidConfig(
            f"hyperparam_mutations={given!r:.80}: pass a dict such as {{'lr': [...]}}"
        )
    return tuple(_mutations(given, ()))


def fill(config: Mapping[str, Any], mutations: Sequence[Mutation], chance: Chance) -> Proposal:
    """Draw values for the parameters that `config` lacks and has a place for."""
    filled, functions = dict(config), list[str]()
    for mutation in mutations:
        if not is_lacking(config, mutation.path):
            continue
        if mutation.function is not None:
            functions.append(mutation.name)
        else:
            filled = put(filled, mutation.path, mutation.draw(chance))
    return _proposal(filled, functions)


def explore(
    config: Mapping[str, Any],
    mutations: Sequence[Mutation],
    chance: Chance,
    *,
    resample_probability: float,
    factors: Sequence[float],
) -> Proposal:
    """Return a neighbour of `config`: each parameter is resampled with that probability, else
    moved.

    A parameter that the config lacks, or that has no neighbours, is resampled; one that has no
    place in this config stays out.
    """
    explored, functions = dict(config), list[str]()
    for mutation in mutations:
        if not has_room(config, mutation.path):
            continue
        value = unwrap_scalar(get(config, mutation.path))
        resamples = chance.random() < resample_probability
        if mutation.knows(value) and not resamples:
            explored = put(explored, mutation.path, mutation.moved(value, chance, factors))
        elif mutation.function is not None:
            functions.append(mutation.name)
        else:
            explored = put(explored, mutation.path, mutation.draw(chance))
    return _proposal(explored, functions)


def _proposal(config: dict[str, Any], functions: Sequence[str]) -> Proposal:
    """`functions` are the parameters for which the user's function must still be called."""
    return Proposal(config=config, asked={"functions": functions} if functions else {})


def get(config: Any, path: Path) -> Any:
    """The parameter in nested dicts; ABSENT if it is missing."""
    for key in path:
        if not isinstance(config, Mapping) or key not in config:
            return ABSENT
        config = config[key]
    return config


def has_room(config: Mapping[str, Any], path: Path) -> bool:
    """Whether the config has a place for the parameter: every outer key that it has holds a dict.

    A choice between `{"width": 64}` and "none" may leave no place for "width".
    """
    inner: Any = config
    for key in path[:-1]:
        if key not in inner:
            return True
        inner = inner[key]
        if not isinstance(inner, Mapping):
            return False
    return True


def is_lacking(config: Mapping[str, Any], path: Path) -> bool:
    """Whether the config lacks the parameter and has a place for it."""
    return get(config, path) is ABSENT and has_room(config, path)


def put(config: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of nested dicts with the value at `path` replaced; `has_room` must hold."""
    key, *rest = path
    if not rest:
        return {**config, key: value}
    return {**config, key: put(config.get(key, {}), tuple(rest), value)}


def _mutations(given: Mapping[str, Any], above: Path) -> Iterator[Mutation]:
    for key, value in given.items():
        path = (*above, key)
        if isinstance(value, Mapping) and value and not is_grid(value):
            yield from _mutations(value, path)
        else:
            yield _mutation(path, value)


def _mutation(path: Path, given: Any) -> Mutation:
    if isinstance(given, Categorical) and not any(
        isinstance(one, Domain) for one in given.categories
    ):
        given = given.categories
    if isinstance(given, (list, tuple)) and given:
        made = Mutation(path=path, values=tuple(map(unwrap_scalar, given)))
        for value in made.values:
            made.check(value)
        return made
    if isinstance(given, Domain):
        return _of_domain(path, given)
    if callable(given):
        return Mutation(path=path, function=lambda config: given())
    raise InvalidConfig(
        f"hyperparam_mutations: {key_name(path)} is {given!r:.80}; pass a list of values, a "
        "domain (tune.uniform(...), tune.choice(...)), a function that takes no argument and "
        "returns a value, or a dict of these"
    )


def _of_domain(path: Path, domain: Domain) -> Mutation:
    if isinstance(domain, Function):
        called = domain
        return Mutation(path=path, function=lambda config: called.call(Spec(config, [])))
    if has_user_code({"": domain}):
        drawn = domain
        return Mutation(path=path, function=lambda config: drawn.sample())
    assert isinstance(domain, (Float, Integer, Normal, Categorical))
    made = Mutation(path=path, domain=domain)
    for value in domain.categories if isinstance(domain, Categorical) else ():
        if not isinstance(value, Domain):
            made.check(value)
    return made


def _whole(product: float, *, away: bool) -> int:
    """Round away from the old value: 4 * 1.2 is 5, and 4 * 0.8 is 3."""
    size = abs(product)
    # 100 * 1.1 is 110.00000000000001.
    rounded = math.ceil(size - 1e-9 * size) if away else math.floor(size + 1e-9 * size)
    return rounded if product > 0 else -rounded
