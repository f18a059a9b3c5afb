"""The search space as recorded, with the values that trials have, for Optuna's distributions.

The records have a space as text (`loguniform(0.001, 0.1)`), so that reading it needs no user code.
The text is parsed as data and never evaluated. In a choice among dicts, lists or domains,
parameters have the config's names, `model/alpha`. The choice itself is a parameter, too: its value
names the option, by the constant that tells the options apart (`{"kind": "ridge", ...}`), or by
its number.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number
from holdfast.results.ranking import params_of, varied_names
from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial import space as domains
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import Parameters
from holdfast.trial.space import Categorical, same
from holdfast.trial.trial import Trial
from holdfast.trial.values import is_plain, key_name, readable

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


_DOMAINS: Final[Mapping[str, Callable[..., Any]]] = {
    name: getattr(domains, name)
    for name in (
        *("uniform", "quniform", "loguniform", "qloguniform", "randn", "qrandn"),
        *("randint", "qrandint", "lograndint", "qlograndint", "choice"),
    )
} | {"grid_search": domains.choice}
_CATEGORY = re.compile(r":\d+(?=/)")


class RecordedSpace:
    """The search space of an experiment.

    `declared` has the distribution of each parameter, None for one whose distribution is unknown.
    """

    def __init__(self, spec: ExperimentSpec, trials: Sequence[Trial]) -> None:
        self._spec = spec
        self._asked = _asked_in(trials)
        self._choices = tuple(_choices_in(spec))
        self.declared: dict[str, Distribution | None] = {
            key_name(tuple(part["path"])): parsed(part["text"]) for part in spec.whole_space
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

    name: str
    path: tuple[str | int, ...]
    parameters: Parameters
    labels: Mapping[str, tuple[Any, ...]]
    declared: Mapping[str, Distribution | None]

    def values(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The values of its parameters in a config; empty if the config does not fit."""
        try:
            value = readable(_at(config, self.path))
            found = self.parameters.assignment({self.name: value}, self.name, _alike)
        except (InvalidSearchSpace, KeyError, IndexError, TypeError):
            return {}
        return {
            _shown(name): self.labels[name][value] if name in self.labels else value
            for name, value in found.items()
        }


def _asked_in(trials: Sequence[Trial]) -> dict[str, Distribution | None]:
    """What a function has asked an Optuna trial for. A parameter with several distributions has
    all that they allow."""
    found: dict[str, Distribution | None] = {}
    for trial in trials:
        for name, text in trial.spec.asked.items():
            made = of_optuna(text)
            found[name] = _merged(found[name], made) if name in found else made
    return found


def _choices_in(spec: ExperimentSpec) -> Iterator[Choice]:
    """The choices of the search space whose options are not all plain values."""
    for part in spec.whole_space:
        domain = _read(part["text"]) if part["varied"] else None
        if isinstance(domain, Categorical) and not _are_plain(domain.categories):
            path = tuple(part["path"])
            made = _choice(key_name(path), path, domain)
            if made is not None:
                yield made


def _choice(name: str, path: tuple[str | int, ...], domain: Categorical) -> Choice | None:
    try:
        parameters = Parameters({name: domain}, who="the export")
    except InvalidSearchSpace:
        return None
    labels, declared = {}, dict[str, Distribution | None]()
    for one in parameters.all:
        made: Distribution | None
        if isinstance(one.domain, Categorical):
            labels[one.name] = _labels(one.domain.categories)
            made = Categories(values=labels[one.name])
        else:
            made = parsed(str(one.domain))
        shown = _shown(one.name)
        declared[shown] = _merged(declared[shown], made) if shown in declared else made
    return Choice(name=name, path=path, parameters=parameters, labels=labels, declared=declared)


def _shown(name: str) -> str:
    """`model:0/alpha`, as searches name it, in the name that the config has for it."""
    return _CATEGORY.sub("", name)


def _labels(options: Sequence[Any]) -> tuple[Any, ...]:
    """What names the options: a constant that differs among dicts, else their text, else
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
    """Whether Optuna can keep the options, and tell them apart."""
    simple = all(type(one) in SIMPLE for one in options)
    return simple and len(set(options)) == len(options)


def _merged(one: Distribution | None, other: Distribution | None) -> Distribution | None:
    """The distribution of a parameter that two options have; None if they do not go together."""
    if isinstance(one, Categories) and isinstance(other, Categories):
        return Categories(values=tuple(dict.fromkeys((*one.values, *other.values))))
    if not isinstance(one, Numbers) or not isinstance(other, Numbers):
        return None
    low, high = min(one.low, other.low), max(one.high, other.high)
    has_steps = one.step == other.step and one.low == other.low
    return replace(
        one,
        low=low,
        high=high,
        is_whole=one.is_whole and other.is_whole,
        is_log=one.is_log and other.is_log,
        step=one.step if has_steps else None,
    )


def _alike(one: object, other: object) -> bool:
    return same(readable(one), readable(other))


def _at(config: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        config = config[key]
    return config


def _read(text: str) -> Any:
    """The value or domain that a text describes; None if it cannot be read."""
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, InvalidSearchSpace):
        return None


def _value(node: ast.expr) -> Any:
    """The text is data: nothing is evaluated. Raises ValueError, TypeError, InvalidSearchSpace."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=given, keywords=named) if name in _DOMAINS:
            words = {word.arg or "": _value(word.value) for word in named}
            return _DOMAINS[name](*map(_value, given), **words)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {ast.literal_eval(key or node): _value(value) for key, value in pairs}
        case ast.List(elts=parts):
            return list(map(_value, parts))
        case ast.Tuple(elts=parts):
            return tuple(map(_value, parts))
        case _:
            return ast.literal_eval(node)
