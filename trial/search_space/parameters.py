"""A search space in the form that libraries use: a flat list of parameters, some conditional.

A parameter is named by its path, `net/width`. A parameter inside a category of a choice exists
only if that category is chosen, and has the category's number in its name: `{"net":
choice([{"width": randint(1, 9)}, ...])}` has the parameters `net`, which is 0, 1, ..., and
`net:0/width`, on the condition that `net` is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.variants import (
    Chosen,
    Computed,
    Constant,
    Copied,
    Dict,
    Drawn,
    Grid,
    List,
    Node,
    TemplateName,
    compile_space,
    copy,
)
from holdfast.trial.space import Categorical, Float, Integer, Normal, Random, same
from holdfast.trial.values import unwrap_scalar

Assignment = Mapping[str, Any]
Same = Callable[[Any, Any], bool]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter. A Categorical is chosen by the number of its category.

    It exists if each parameter in `conditions` has the category of that number.
    """

    name: str
    domain: Float | Integer | Normal | Categorical
    conditions: tuple[tuple[str, int], ...] = ()

    @property
    def count(self) -> int:
        """The number of categories. Raises InvalidSearchSpace for a numeric parameter."""
        if not isinstance(self.domain, Categorical):
            raise InvalidSearchSpace(f"{self.name} is a number: it has no categories")
        return len(self.domain.categories)

    def exists_in(self, assignment: Assignment) -> bool:
        return all(assignment.get(name) == number for name, number in self.conditions)

    def fit(self, value: Any) -> Any:
        """The nearest value that the parameter can have, within its bounds and steps."""
        if isinstance(self.domain, Categorical):
            return min(max(int(value), 0), self.count - 1)
        if math.isnan(value):
            raise InvalidSearchSpace(f"{self.name} cannot be {value!r}")
        return self.domain.nearest(value)

    def draw(self, rng: Random) -> Any:
        if isinstance(self.domain, Categorical):
            return int(rng.random() * self.count)
        return self.domain.draw(rng)


class Parameters:
    """The parameters of a search space, and its configs as assignments of values to them.

    An assignment has a value for each parameter that exists under it, and for no other. With
    `named`, a config has the searched values without the fixed values next to them, which the
    Tuner's space has anyway; and it has a Ref in place of an object of the space (see
    `values.fold_values`). Without it, a config has the whole space. Errors name `who`.

    Raises InvalidSearchSpace, naming the key, for a part that no library can search, and for a
    space with nothing to search.
    """

    def __init__(self, space: Mapping[str, Any], *, who: str, named: bool = True) -> None:
        self._root = compile_space(space, None, "param_space", []).root
        self._named = named
        self.all = tuple(_listed(self._root, "", (), who))
        names = [parameter.name for parameter in self.all]
        if not names:
            raise InvalidSearchSpace(f"param_space has nothing that {who} could search")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidSearchSpace(f"{twice}: param_space has two parameters of this name")

    def config(self, assignment: Assignment) -> dict[str, Any]:
        """The nested config for `assignment`."""
        config: dict[str, Any] = self._value(self._root, "", assignment, whole=not self._named)
        return config

    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """`config` without keys that the space does not have."""
        assert isinstance(self._root, Dict)
        names = {name for name, _ in self._root.items}
        return {name: value for name, value in config.items() if name in names}

    def assignment(self, config: Mapping[str, Any], label: str, alike: Same = same) -> Assignment:
        """The assignment for `config`; parameters that `config` lacks may be missing.

        If several categories fit, the first one. `alike` compares users' objects. Raises
        InvalidSearchSpace, starting with `label`, for values that the space does not have.
        """
        found: dict[str, Any] = {}
        try:
            _read(self._root, "", config, found, alike)
        except InvalidSearchSpace as error:
            raise InvalidSearchSpace(f"{label}: {error}") from None
        return found

    def fit(self, assignment: Assignment, who: str) -> Assignment:
        """`assignment` without parameters that do not exist under it, with values that they can
        have.

        Raises InvalidSearchSpace if `who` has left one out.
        """
        fitted: dict[str, Any] = {}
        for parameter in self.all:
            if parameter.exists_in(fitted):
                if parameter.name not in assignment:
                    raise InvalidSearchSpace(f"{parameter.name}: {who} returned no value for it")
                fitted[parameter.name] = parameter.fit(assignment[parameter.name])
        return fitted

    def complete(self, assignment: Assignment, rng: Random) -> Assignment:
        """`assignment` with missing parameters drawn at random."""
        whole: dict[str, Any] = {}
        for parameter in self.all:
            if parameter.exists_in(whole):
                known = parameter.name in assignment
                value = assignment[parameter.name] if known else parameter.draw(rng)
                whole[parameter.name] = value
        return whole

    def _value(self, node: Node, name: str, assignment: Assignment, *, whole: bool = True) -> Any:
        match node:
            case Drawn():
                return assignment[name]
            case Chosen(children=children):
                number = assignment[name]
                return self._value(children[number], _category(name, number), assignment)
            case Dict(items=items):
                return {
                    key: self._value(item, inside(name, key), assignment, whole=whole)
                    for key, item in items
                    if whole or _is_searched(item)
                }
            case List(children=children, is_tuple=is_tuple):
                parts = [
                    self._value(child, inside(name, i), assignment)
                    for i, child in enumerate(children)
                ]
                return tuple(parts) if is_tuple else parts
            case Copied(value=value):
                return copy(value)
            case TemplateName(value=value, ref=ref):
                return ref if self._named else value
            case Constant(value=value):
                return value
            case _:
                raise AssertionError(f"{name}: {node!r} is not searchable")


def _listed(
    node: Node, name: str, conditions: tuple[tuple[str, int], ...], who: str
) -> Iterator[Parameter]:
    match node:
        case Drawn(domain=Float() | Integer() | Normal() as domain):
            yield Parameter(name=name, domain=domain, conditions=conditions)
        case Chosen(children=children, domain=choice):
            yield Parameter(name=name, domain=choice, conditions=conditions)
            for number, child in enumerate(children):
                inner = (*conditions, (name, number))
                yield from _listed(child, _category(name, number), inner, who)
        case Dict(items=items):
            for key, item in items:
                yield from _listed(item, inside(name, key), conditions, who)
        case List(children=children):
            for i, child in enumerate(children):
                yield from _listed(child, inside(name, i), conditions, who)
        case Grid():
            raise InvalidSearchSpace(
                f"{name}: {who} cannot search a grid_search: use tune.choice instead, or leave "
                "out search_alg to try every value"
            )
        case Computed():
            raise InvalidSearchSpace(
                f"{name}: {who} cannot search a sample_from: compute the value in the trainable, "
                "from the values that it depends on"
            )
        case Drawn(domain=domain):
            raise InvalidSearchSpace(f"{name}: {who} cannot search a {type(domain).__name__}")
        case _:
            pass  # a fixed value


def _read(node: Node, name: str, value: Any, found: dict[str, Any], alike: Same) -> None:
    """Add the parameters below `node` that `value` determines to `found`."""
    match node:
        case Drawn(domain=domain):
            value = unwrap_scalar(value)
            if isinstance(value, bool) or not domain.is_valid(value):
                raise InvalidSearchSpace(f"{name}: {value!r:.100} is not in {domain}")
            found[name] = value
        case Chosen(children=children):
            number = _category_of(name, children, value, alike)
            found[name] = number
            _read(children[number], _category(name, number), value, found, alike)
        case Dict(items=items):
            for child, key, part in keys_of(dict(items), name, value):
                _read(child, key, part, found, alike)
        case List(children=children) if _is_searched(node):
            for child, place, part in items_of(children, name, value):
                _read(child, place, part, found, alike)
        case _:
            pass  # a fixed value


def keys_of(items: Mapping[str, T], name: str, value: Any) -> Iterator[tuple[T, str, Any]]:
    """For each key of a dict in a config: the space's part, the name and the value. Raises
    InvalidSearchSpace for anything but a dict of some of these keys."""
    if not isinstance(value, Mapping):
        raise InvalidSearchSpace(f"{name or 'a config'} must be a dict, not {value!r:.100}")
    for key, part in value.items():
        if key not in items:
            known = ", ".join(map(repr, items))
            raise InvalidSearchSpace(
                f"{inside(name, key)} is not in the search space, only {known}"
            )
        yield items[key], inside(name, key), part


def items_of(children: Sequence[T], name: str, value: Any) -> Iterator[tuple[T, str, Any]]:
    """The same for each item of a list. Raises InvalidSearchSpace for another length."""
    if not isinstance(value, (list, tuple)) or len(value) != len(children):
        raise InvalidSearchSpace(f"{name} must be a list of {len(children)}")
    for i, (child, item) in enumerate(zip(children, value, strict=True)):
        yield child, inside(name, i), item


def _category_of(name: str, children: tuple[Node, ...], value: Any, alike: Same) -> int:
    for match, whole in ((_is_exactly, True), (alike, True), (alike, False)):
        for number, child in enumerate(children):
            if _matches(child, value, match, whole=whole):
                return number
    raise InvalidSearchSpace(f"{name}: {value!r:.100} is not one of its categories")


def _matches(node: Node, value: Any, match: Same, *, whole: bool) -> bool:
    """Whether `value` could come from `node`; keys may be missing unless it is `whole`."""
    match node:
        case Constant(value=known) | Copied(value=known) | TemplateName(value=known):
            return match(known, value)
        case Drawn(domain=domain):
            return not isinstance(value, bool) and domain.is_valid(value)
        case Chosen(children=children):
            return any(_matches(child, value, match, whole=whole) for child in children)
        case Dict(items=items):
            known = dict(items)
            if not isinstance(value, Mapping) or not value.keys() <= known.keys():
                return False
            if whole and len(value) < len(known):
                return False
            return all(_matches(known[k], part, match, whole=whole) for k, part in value.items())
        case List(children=children):
            return (
                isinstance(value, (list, tuple))
                and len(value) == len(children)
                and all(
                    _matches(child, part, match, whole=whole)
                    for child, part in zip(children, value, strict=True)
                )
            )
        case _:
            return False


def _is_searched(node: Node) -> bool:
    match node:
        case Drawn() | Chosen():
            return True
        case Dict(items=items):
            return any(_is_searched(item) for _, item in items)
        case List(children=children):
            return any(map(_is_searched, children))
        case _:
            return False


def _is_exactly(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and same(one, other))


def inside(name: str, key: object) -> str:
    """The name of what is at `key` of the part of a config with this name."""
    return f"{name}/{key}" if name else str(key)


def _category(name: str, number: int) -> str:
    return f"{name}:{number}"
