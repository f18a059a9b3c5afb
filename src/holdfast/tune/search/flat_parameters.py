"""Search spaces of libraries that list their parameters by name, some of them on conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import (
    Assignment,
    Parameter,
    Parameters,
    Same,
    inside,
)
from holdfast.trial.space import Categorical, same
from holdfast.trial.values import unwrap_scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class DependentParameter(Parameter):
    """Exists where each parameter in `when` has one of these categories."""

    when: tuple[tuple[str, frozenset[int]], ...] = ()

    def exists_in(self, assignment: Assignment) -> bool:
        return all(assignment.get(name) in numbers for name, numbers in self.when)


class FlatParameters(Parameters):
    """Parameters by name, each after those on which it depends. A name such as `net/width` is the
    place in a nested config. A value that is fixed is a choice of one category.

    Raises InvalidSearchSpace for a name that occurs twice, and if there are none.
    """

    def __init__(self, parameters: Sequence[Parameter], *, who: str) -> None:
        self.all = tuple(parameters)
        self._by_name = {one.name: one for one in self.all}
        if not self.all:
            raise InvalidSearchSpace(f"space has nothing that {who} could search")
        if len(self._by_name) < len(self.all):
            names = [one.name for one in self.all]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidSearchSpace(f"{twice}: space has two parameters of this name")

    def config(self, assignment: Assignment) -> dict[str, Any]:
        return nested(
            (one.name, _value(one, assignment[one.name]))
            for one in self.all
            if one.name in assignment
        )

    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return nested((n, value) for n, value in self._values(config, "") if n in self._by_name)

    def assignment(self, config: Mapping[str, Any], label: str, alike: Same = same) -> Assignment:
        found = {}
        for name, value in self._values(config, ""):
            if name not in self._by_name:
                known = ", ".join(map(repr, self._by_name))
                raise InvalidSearchSpace(
                    f"{label}: {name} is not in the search space, only {known}"
                )
            found[name] = _read(self._by_name[name], unwrap_scalar(value), label, alike)
        return found

    def _values(self, config: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
        """The values of a nested config under their names."""
        for key, value in config.items():
            here = inside(name, key)
            if isinstance(value, Mapping) and here not in self._by_name:
                yield from self._values(value, here)
            else:
                yield here, value


def nested(named: Any) -> dict[str, Any]:
    """A config with each value at the place that its name says: `net/width` inside `net`."""
    config: dict[str, Any] = {}
    for name, value in named:
        *path, last = name.split("/")
        place = config
        for key in path:
            place = place.setdefault(key, {})
        place[last] = value
    return config


def fixed(value: Any) -> Categorical:
    """A choice of nothing else."""
    return Categorical(categories=(value,))


def _value(parameter: Parameter, value: Any) -> Any:
    domain = parameter.domain
    return domain.categories[value] if isinstance(domain, Categorical) else value


def _read(parameter: Parameter, value: Any, label: str, alike: Same) -> Any:
    domain = parameter.domain
    if not isinstance(domain, Categorical):
        if not isinstance(value, bool) and domain.is_valid(value):
            return value
        raise InvalidSearchSpace(f"{label}: {parameter.name}: {value!r:.100} is not in {domain}")
    equal = [number for number, one in enumerate(domain.categories) if alike(one, value)]
    # 1 and True are equal.
    exact = [number for number in equal if type(domain.categories[number]) is type(value)]
    if equal:
        return (exact or equal)[0]
    raise InvalidSearchSpace(
        f"{label}: {parameter.name}: {value!r:.100} is not one of its categories"
    )
