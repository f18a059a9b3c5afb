"""A search space as a tree of nodes; each puts one value into the configuration being drawn."""

from __future__ import annotations

from bisect import bisect_right
from math import prod
from typing import Any, NamedTuple, Protocol

from holdfast.trial.domains import Categorical, Domain, Function, Random, below
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.nesting import check_nesting
from holdfast.trial.search_space.sample_spec import Spec, Waiting, detach
from holdfast.trial.space import is_grid
from holdfast.trial.values import Path, Ref, spread


class Template(NamedTuple):
    """A compiled space: `varied` are the parameters to show, `size` is its number of grid
    combinations."""

    root: Node
    varied: tuple[tuple[str, Path], ...]
    size: int

    def draw(self, combination: int, rng: Random) -> dict[str, Any]:
        draw = Draw(rng)
        top: dict[str, dict[str, Any]] = {}
        self.root.place(draw, top, "config")
        if draw.grids:
            _place_grids(draw, combination)
        if draw.computed:
            _compute(draw, top["config"])
        for container, key, ref in draw.refs:
            container[key] = ref
        for container, key in reversed(draw.tuples):  # inner ones were added last
            container[key] = tuple(container[key])
        return top["config"]

    def evaluated(self, config: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, path in self.varied:
            value: Any = config
            for step in path:
                value = value[step]
            found |= spread({name: value})
        return found


class Draw:
    """The values that are still missing in a configuration under construction."""

    __slots__ = ("computed", "grids", "refs", "rng", "tuples")

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.grids: list[tuple[Any, Any, Grid]] = []
        self.computed: list[tuple[Any, Any, Computed]] = []
        self.refs: list[tuple[Any, Any, Ref]] = []
        self.tuples: list[tuple[Any, Any]] = []


# Nodes are named tuples: a frozen dataclass takes 0.8 ms at the import, one of these 0.1 ms.
class Node(Protocol):
    def place(self, draw: Draw, container: Any, key: Any) -> None:
        """Put a value under `key`, or register with `draw` to do so later."""


class Constant(NamedTuple):
    value: Any

    def place(self, draw: Draw, container: Any, key: Any) -> None:
        container[key] = self.value


class Copied(NamedTuple):
    value: Any

    def place(self, draw: Draw, container: Any, key: Any) -> None:
        container[key] = copy(self.value)


class TemplateName(NamedTuple):
    value: Any
    ref: Ref

    def place(self, draw: Draw, container: Any, key: Any) -> None:
        container[key] = self.value  # sample_from functions read the value itself
        draw.refs.append((container, key, self.ref))


class Drawn(NamedTuple):
    domain: Domain

    def place(self, draw: Draw, container: Any, key: Any) -> None:
        container[key] = self.domain.draw(draw.rng)


class Chosen(NamedTuple):
    children: tuple[Node, ...]
    domain: Categorical

    def place(self, draw: Draw, container: Any, key: Any) -> None:
        self.children[below(len(self.children), draw.rng)].place(draw, container, key)


class Computed(NamedTuple):
    function: Function
    name: str

    def place(self, draw: Draw, container: Any, key: Any) -> None:
        container[key] = Waiting(name=self.name)
        draw.computed.append((container, key, self))

    def missing(self, config: dict[str, Any], draw: Draw, container: Any, key: Any) -> list[str]:
        """Call the function; return the names that it still waits for."""
        missed: list[str] = []
        try:
            spec = Spec(config, missed)
            returned = self.function.call(spec)
            check_nesting(returned, "what it returned")
            value = detach(returned, lambda part: _settled(part, spec, draw.rng))
        except InvalidSearchSpace as error:
            raise InvalidSearchSpace(f"{self.name}: sample_from: {error}") from error
        except Exception as error:  # user code: reported, unless it was only called too early
            if not missed:
                raise InvalidSearchSpace(
                    f"{self.name}: sample_from's function raised {type(error).__name__}: {error}"
                ) from error
        if not missed:
            container[key] = value
        return missed


def _settled(value: Any, spec: Spec, rng: Random) -> Any:
    """A value drawn from a domain, the result of a function; other values as they are."""
    while isinstance(value, Domain):
        value = value.call(spec) if isinstance(value, Function) else value.draw(rng)
    if is_grid(value):
        raise InvalidSearchSpace(
            "it returned a grid_search, whose number of trials is unknown before: use tune.choice"
        )
    return value


class Dict(NamedTuple):
    items: tuple[tuple[str, Node], ...]

    def place(self, draw: Draw, container: Any, key: Any) -> None:
        values: dict[str, Any] = {}
        container[key] = values
        for name, child in self.items:
            child.place(draw, values, name)


class List(NamedTuple):
    children: tuple[Node, ...]
    is_tuple: bool

    def place(self, draw: Draw, container: Any, key: Any) -> None:
        container[key] = values = [None] * len(self.children)
        if self.is_tuple:
            draw.tuples.append((container, key))
        for i, child in enumerate(self.children):
            child.place(draw, values, i)


class Grid(NamedTuple):
    """Placed last, so that values outside grids are the same in every combination."""

    children: tuple[Node, ...]
    ends: tuple[int, ...]  # ends[i] is the number of combinations up to child i

    def place(self, draw: Draw, container: Any, key: Any) -> None:
        container[key] = None
        draw.grids.append((container, key, self))

    def pick(self, combination: int) -> tuple[Node, int]:
        number = bisect_right(self.ends, combination)
        return self.children[number], combination - (self.ends[number - 1] if number else 0)


def size(node: Node) -> int:
    """The number of grid combinations below `node`, 1 without a grid."""
    match node:
        case Grid(ends=ends):
            return ends[-1]
        case Dict(items=items):
            return prod(size(child) for _, child in items)
        case List(children=children):
            return prod(map(size, children))
        case _:
            return 1


def _place_grids(draw: Draw, combination: int) -> None:
    """Put each grid's value: the first grid changes fastest, one inside its values before it."""
    waiting, draw.grids = draw.grids, []
    for container, key, grid in waiting:
        combination, own = divmod(combination, grid.ends[-1])
        child, rest = grid.pick(own)
        child.place(draw, container, key)
        _place_grids(draw, rest)


def _compute(draw: Draw, config: dict[str, Any]) -> None:
    """Call the sample_from functions, in any order, until each has the values that it reads."""
    waiting = draw.computed
    while waiting:
        missing = [node.missing(config, draw, container, key) for container, key, node in waiting]
        left = [(slot, names) for slot, names in zip(waiting, missing, strict=True) if names]
        if len(left) == len(waiting):
            needs = "; ".join(f"{slot[2].name} needs {names[0]}" for slot, names in left)
            raise InvalidSearchSpace(f"sample_from functions wait for each other: {needs}")
        waiting = [slot for slot, _ in left]


def copy(value: Any) -> Any:
    """A copy of a plain value with new containers, so that no configuration changes another."""
    kind = type(value)
    if kind is dict:
        return {key: copy(item) for key, item in value.items()}
    if kind is list:
        return [copy(item) for item in value]
    if kind is set:
        return set(value)
    return tuple(map(copy, value)) if kind is tuple else value
