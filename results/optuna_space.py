"""The search space of an experiment in Optuna's distributions, from its records.

In a choice among dicts, lists or domains, parameters have the config's names, `model/alpha`. The
choice itself is a parameter, too: its value names the option, by the constant that tells the
options apart (`{"kind": "ridge"}`), or by its number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any, cast

from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    json_to_distribution,
)

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number
from holdfast.results.ranking import params_of, varied_names
from holdfast.results.recorded_space import read_domain
from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import Parameters
from holdfast.trial.space import Categorical, Domain, Float, Integer, same
from holdfast.trial.trial import Trial
from holdfast.trial.values import is_plain, key_name, readable

# Types that Optuna keeps as categories; values of other types become text.
SIMPLE = (type(None), bool, int, float, str)
_CATEGORY = re.compile(r":\d+(?=/)")

Distribution = Any  # one of Optuna's three classes above
# None for a parameter whose distribution is unknown.
Declared = dict[str, Distribution | None]


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
        if made is None or not all(_holds(made, value) for value in values):
            unknown += [name] if values else []
            made = _range(values)
        if made is not None:
            found[name] = made
    return Distributions(known=found, unknown=tuple(unknown))


def values_in(kinds: Mapping[str, Distribution], config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of parameters in the form that their distributions have."""
    return {
        name: simple(config[name]) if isinstance(kind, CategoricalDistribution) else config[name]
        for name, kind in kinds.items()
    }


def categories(values: Iterable[Any]) -> Distribution:
    """One of these values, in the form of categories."""
    return CategoricalDistribution(tuple(dict.fromkeys(map(simple, values))))


def simple(value: Any) -> Any:
    """A value in the form of a category."""
    return value if type(value) in SIMPLE else str(value)


def _holds(made: Distribution, value: Any) -> bool:
    """True if the distribution contains the value."""
    if isinstance(made, CategoricalDistribution):
        return simple(value) in made.choices
    if not is_number(value) or not made.low <= value <= made.high:
        return False
    steps: float = 0 if made.step is None else (value - made.low) / made.step
    return abs(steps - round(steps)) < 1e-8


def _range(values: Sequence[Any]) -> Distribution | None:
    kinds = {type(value) for value in values}
    if not kinds or not kinds <= {int, float} or not all(map(math.isfinite, values)):
        return None
    # Not whole numbers, even if all are so far: a later trial may bring another one.
    return FloatDistribution(min(values), max(values))


def _distribution(domain: object) -> Distribution | None:
    """The distribution of a domain; None if it has none."""
    match domain:
        case Categorical(categories=values) if not any(isinstance(v, Domain) for v in values):
            return categories(values)
        case Integer() | Float():
            low, high, log = domain.nearest(domain.lower), domain.nearest(domain.upper), domain.log
            step = None if log else domain.q  # Optuna has no steps on a logarithmic scale
            if isinstance(domain, Integer):
                return IntDistribution(int(low), int(high), log, int(step or 1))
            return FloatDistribution(low, high, log, step)
        case _:
            return None


def _of_json(text: str) -> Distribution | None:
    """The distribution that Optuna describes by this JSON; None if it does not say enough."""
    try:
        found = json_to_distribution(text)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return categories(found.choices) if isinstance(found, CategoricalDistribution) else found


class RecordedSpace:
    """The search space of an experiment.

    `declared` has the distribution of each parameter, None for one whose distribution is unknown.
    """

    def __init__(self, spec: ExperimentSpec, trials: Sequence[Trial]) -> None:
        self._spec = spec
        self._asked = _asked_in(trials)
        domains = {
            tuple(part["path"]): read_domain(part["text"])
            for part in spec.whole_space
            if part["varied"]
        }
        self._choices = tuple(_choices_in(domains))
        self.declared: Declared = {
            key_name(path): _distribution(domain) for path, domain in domains.items()
        }
        for choice in self._choices:
            self.declared |= choice.declared
        self.declared |= self._asked

    def names(self, trials: Sequence[Trial]) -> list[str]:
        """The parameters that the space varies. Those of a choice precede the others."""
        inside = {name: None for choice in self._choices for name in choice.declared}
        varied = [n for n in varied_names(self._spec, trials) if not self._is_inside(n)]
        return list(dict.fromkeys([*inside, *self._asked, *varied]))

    def params(self, trial: Trial) -> dict[str, Any]:
        """A trial's whole config, flat, and its options of the choices."""
        found = params_of(trial)
        for choice in self._choices:
            found |= choice.values(trial.config)
        return found

    def _is_inside(self, name: str) -> bool:
        heads = (choice.name for choice in self._choices)
        return any(name == head or name.startswith(f"{head}/") for head in heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice whose options are not all plain values.

    `declared` has its parameters with their distributions, None for one that has no distribution.
    """

    path: tuple[str | int, ...]
    parameters: Parameters
    labels: Mapping[str, tuple[Any, ...]]
    declared: Declared

    @property
    def name(self) -> str:
        return key_name(self.path)

    def values(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The values of its parameters in a config; empty if the config does not fit."""
        try:
            value = readable(reduce(getitem, self.path, cast(Any, config)))
            found = self.parameters.assignment({self.name: value}, self.name, _alike)
        except (InvalidSearchSpace, KeyError, IndexError, TypeError):
            return {}
        return {
            _shown(name): self.labels[name][value] if name in self.labels else value
            for name, value in found.items()
        }


def _asked_in(trials: Sequence[Trial]) -> Declared:
    """The parameters that functions have asked an Optuna trial for. One with several distributions
    has all that they allow."""
    found: Declared = {}
    for trial in trials:
        for name, text in trial.spec.asked.items():
            _declare(found, name, _of_json(text))
    return found


def _choices_in(domains: Mapping[tuple[str | int, ...], object]) -> Iterator[Choice]:
    """The choices of the search space whose options are not all plain values."""
    for path, domain in domains.items():
        if isinstance(domain, Categorical) and not _are_plain(domain.categories):
            try:
                parameters = Parameters({key_name(path): domain}, who="the export")
            except InvalidSearchSpace:
                continue
            yield _choice(path, parameters)


def _choice(path: tuple[str | int, ...], parameters: Parameters) -> Choice:
    labels, declared = {}, Declared()
    for one in parameters.all:
        made = _distribution(one.domain)
        if isinstance(one.domain, Categorical):
            labels[one.name] = _labels(one.domain.categories)
            made = CategoricalDistribution(labels[one.name])
        _declare(declared, _shown(one.name), made)
    return Choice(path=path, parameters=parameters, labels=labels, declared=declared)


def _shown(name: str) -> str:
    """`model:0/alpha`, as searches name it, in the name that the config has for it."""
    return _CATEGORY.sub("", name)


def _labels(options: Sequence[Any]) -> tuple[Any, ...]:
    """The labels of the options: a constant that differs among dicts, else their text, else
    numbers."""
    keys = dict.fromkeys(key for one in options if isinstance(one, dict) for key in one)
    by_key = [
        [one.get(key, one) if isinstance(one, dict) else _text(one) for one in options]
        for key in keys
    ]
    for found in (*by_key, list(map(_text, options))):
        if _are_plain(found):
            return tuple(found)
    return tuple(range(len(options)))


def _text(option: Any) -> Any:
    return simple(option) if is_plain(option) else option


def _are_plain(options: Sequence[Any]) -> bool:
    """True if Optuna can keep the options, and tell them apart."""
    simple = all(type(one) in SIMPLE for one in options)
    return simple and len(set(options)) == len(options)


def _declare(declared: Declared, name: str, made: Distribution | None) -> None:
    """Add a distribution of a parameter that may have another one in another option."""
    declared[name] = _merged(declared[name], made) if name in declared else made


def _merged(one: Distribution | None, other: Distribution | None) -> Distribution | None:
    """The distribution that contains both; None if they do not go together."""
    if isinstance(one, CategoricalDistribution) and isinstance(other, CategoricalDistribution):
        return categories((*one.choices, *other.choices))
    if one is None or other is None or CategoricalDistribution in (type(one), type(other)):
        return None
    low, high = min(one.low, other.low), max(one.high, other.high)
    is_log = one.log and other.log
    step = one.step if one.step == other.step and one.low == other.low else None
    if isinstance(one, IntDistribution) and isinstance(other, IntDistribution):
        return IntDistribution(low, high, is_log, step or 1)
    return FloatDistribution(low, high, is_log, step)


def _alike(one: object, other: object) -> bool:
    return same(readable(one), readable(other))
