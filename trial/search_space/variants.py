"""Draws configurations from a search space: every grid combination, `num_samples` times.

A space is compiled once into nodes; configuration i is then a pure function of the space, of i and
of the generator: after a restore, the trials that were not created yet are the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from operator import is_
from typing import Any, NamedTuple, Protocol

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.description import text_of
from holdfast.trial.space import (
    Categorical,
    Domain,
    Function,
    Random,
    below,
    grid_values,
    is_grid,
    is_searched,
    same,
)
from holdfast.trial.values import (
    Path,
    Ref,
    check_nesting,
    excerpt,
    has_text_keys,
    is_plain,
    key_name,
    spread,
    summarize,
    unwrap_scalar,
)


class Unresolved(Exception):
    """A `sample_from` function read a value that is not drawn yet: it is called again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The placeholder of a value that a `sample_from` function has not returned yet."""

    name: str


class ConfigView(Mapping[str, Any]):
    """A configuration for `sample_from` functions: `settings.lr` and `settings["lr"]`.

    Reading a value that is not drawn yet adds its name to `missed` and raises Unresolved.
    """

    __slots__ = ("_missed", "_values")

    def __init__(self, values: Mapping[str, Any], missed: list[str]) -> None:
        self._values = values
        self._missed = missed

    def __getitem__(self, key: str) -> Any:
        return self._open(self._values[key])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle look these up before _values exists
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            known = ", ".join(map(repr, self._values))
            raise AttributeError(f"there is no {name!r} here, only {known}", name=name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    def _open(self, value: Any) -> Any:
        if type(value) is Waiting:
            self._missed.append(value.name)
            raise Unresolved(value.name)
        if type(value) is dict:
            return ConfigView(value, self._missed)
        if type(value) is list or type(value) is tuple:
            return type(value)(map(self._open, value))
        return value


class Spec(ConfigView):
    """The whole configuration, also under `config`: `spec.config.lr`, `spec["config"]["lr"]`."""

    __slots__ = ()

    @property
    def config(self) -> ConfigView:
        return ConfigView(self._values, self._missed)

    def __getitem__(self, key: str) -> Any:
        if key == "config" and key not in self._values:
            return self.config
        return super().__getitem__(key)


def detach(value: Any, settle: Callable[[Any], Any]) -> Any:
    """The result of a `sample_from` function, in new containers, with ConfigViews as dicts.

    `settle` returns what takes the place of each part, such as a value drawn from a domain.
    """
    value = settle(value)
    if isinstance(value, ConfigView) or type(value) is dict:
        return {key: detach(item, settle) for key, item in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(detach(item, settle) for item in value)
    return unwrap_scalar(value)


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


def compile_space(
    space: Mapping[str, Any], preset: Mapping[str, Any] | None, label: str, notices: list[str]
) -> Template:
    """The template of `space`, with the values of `preset` in their places; adds to `notices`.

    `label` names the space in errors and notices. Raises InvalidSearchSpace.
    """
    for given in (space, preset or {}):
        if not isinstance(given, dict) or is_grid(given):
            raise InvalidSearchSpace(f"{label} must be a dict of parameters, not {given!r}")
    compiler, spot = _Compiler(label, notices), _Spot()
    try:
        if preset is None:
            root = compiler.compile(space, spot)
        else:
            root = compiler.overlay(space, preset, spot)
    except RecursionError as error:
        raise InvalidSearchSpace(f"{label} is nested too deeply, or contains itself") from error
    varied = tuple((key_name(path), path) for path in compiler.varied)
    return Template(root, varied, size(root))


class _Spot(NamedTuple):
    """The place of a value: in the configuration, and (through categories) in the search space."""

    config: Path = ()
    space: Path = ()
    number: int | None = None
    is_varied: bool = False  # inside a parameter that is already known to vary
    is_chosen: bool = False  # inside a choice, where a grid cannot be counted
    is_preset: bool = False  # from a preset: not in the space, so no Ref can name it

    @property
    def name(self) -> str:
        return key_name(self.config)

    @property
    def _full(self) -> Path:
        return self.space if self.number is None else (*self.space, self.number)

    def inside(self, key: str | int) -> _Spot:
        return self._replace(config=(*self.config, key), space=(*self._full, key), number=None)

    def category(self, number: int) -> _Spot:
        return self._replace(space=self._full, number=number, is_varied=True)


class _Compiler:
    """Turns values of a space into nodes; collects `varied` and `notices`."""

    def __init__(self, label: str, notices: list[str]) -> None:
        self.label = label
        self.notices = notices
        self.varied: list[Path] = []

    def compile(self, value: Any, spot: _Spot) -> Node:
        value = unwrap_scalar(value)
        searched = is_searched(value)
        if is_plain(value) and not searched and (spot.config or has_text_keys(value)):
            self._note_expressions(value, spot.config)
            container = isinstance(value, (dict, list, tuple, set))
            return Copied(copy(value)) if container else Constant(value)
        if isinstance(value, Domain) or is_grid(value):
            return self._searched(value, spot)
        if type(value) in (dict, list, tuple) or searched:
            node = self._container(value, spot)
            if node is not None:
                return node
        if spot.is_preset:
            return Constant(value)
        return TemplateName(
            value,
            Ref(
                path=spot.space,
                index=spot.number,
                summary=summarize(value, spot.number),
                shown=excerpt(value),
            ),
        )

    def overlay(self, value: Any, preset: Any, spot: _Spot) -> Node:
        """Compile `value` with the values of `preset` in their places."""
        if not isinstance(value, dict) or is_grid(value) or not isinstance(preset, dict):
            return self._fix(value, preset, spot)
        for key in preset:
            if key not in value:
                known = ", ".join(map(repr, value))
                raise self._error(spot.inside(key), f"is not in the search space, only {known}")
        items = (
            (key, self.overlay(item, preset[key], spot.inside(key)))
            if key in preset
            else (key, self.compile(item, spot.inside(key)))
            for key, item in value.items()
        )
        return Dict(tuple(items))

    def _searched(self, value: Any, spot: _Spot) -> Node:
        self._note_varied(spot)
        if is_grid(value):
            return self._grid(value, spot)
        if isinstance(value, Function):
            return Computed(value, spot.name)
        if not isinstance(value, Categorical):
            return Drawn(value)
        inner = spot._replace(is_chosen=True)
        return Chosen(self._categories(value.categories, inner), value)

    def _grid(self, value: Any, spot: _Spot) -> Grid:
        if spot.is_chosen:
            raise self._error(spot, "a grid_search inside a choice has no fixed number of trials")
        try:
            values = grid_values(value) or ()
        except InvalidSearchSpace as error:
            raise self._error(spot, str(error)) from None
        children = self._categories(values, spot)
        return Grid(children, tuple(accumulate(map(size, children))))

    def _categories(self, values: Sequence[Any], spot: _Spot) -> tuple[Node, ...]:
        return tuple(self.compile(value, spot.category(i)) for i, value in enumerate(values))

    def _container(self, value: Any, spot: _Spot) -> Node | None:
        """The node of a dict, list or tuple; None for a dict with other keys than text and nothing
        to sample."""
        if not isinstance(value, dict):
            if type(value) not in (list, tuple):
                kind = type(value).__name__
                raise self._error(spot, f"a {kind} contains domains; use a plain list or tuple")
            children = tuple(self.compile(v, spot.inside(i)) for i, v in enumerate(value))
            return List(children, type(value) is tuple)
        odd = [key for key in value if not (type(key) is str and is_plain(key))]
        if not odd:
            items = ((key, self.compile(item, spot.inside(key))) for key, item in value.items())
            return Dict(tuple(items))
        if is_searched(value) or not spot.config:
            raise self._error(spot, f"keys must be text, not {odd[0]!r}")
        return None

    def _fix(self, value: Any, preset: Any, spot: _Spot) -> Node:
        self._note_varied(spot)
        preset = unwrap_scalar(preset)
        if is_searched(preset):
            raise self._error(spot, "a preset must be a value, not a domain")
        categories = value.categories if isinstance(value, Categorical) else grid_values(value)
        for match in (is_, same):
            for i, category in enumerate(categories or ()):
                if match(unwrap_scalar(category), preset):
                    return self.compile(category, spot.category(i))
        if not (value.is_valid(preset) if isinstance(value, Domain) else same(value, preset)):
            self.notices.append(
                f"{self.label}: {spot.name}: {text_of(preset)}, "
                f"where param_space has {text_of(value)}"
            )
        return self.compile(preset, spot._replace(is_preset=True, is_varied=True))

    def _note_expressions(self, value: Any, path: Path) -> None:
        """Name each `{"eval": "spec.config.x"}`, which an older Ray evaluates."""
        match value:
            case {"eval": str(text)} if len(value) == 1 and "spec." in text:
                self.notices.append(
                    f"{self.label}: {key_name(path)}: {value!r:.80} is a constant, which nothing "
                    f"evaluates. Write tune.sample_from(lambda spec: {text:.80})"
                )
            case dict():
                for key, item in value.items():
                    self._note_expressions(item, (*path, key))
            case list() | tuple():
                for at, item in enumerate(value):
                    self._note_expressions(item, (*path, at))
            case _:
                pass

    def _note_varied(self, spot: _Spot) -> None:
        if not spot.is_varied:
            self.varied.append(spot.config)

    def _error(self, spot: _Spot, rule: str) -> InvalidSearchSpace:
        where = dict.fromkeys((self.label, spot.name))  # only once for the space itself
        return InvalidSearchSpace(f"{': '.join(where)}: {rule}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One configuration: `evaluated` has only its varied parameters, named as in `net/width`.

    `config` has a Ref for each value of the space that is not plain. Results of `sample_from`
    functions and values of `points_to_evaluate` are unchanged in it: the shell makes Opaques of
    them (`values.seal`) before it is journalled.
    """

    index: int
    config: dict[str, Any]
    evaluated: dict[str, Any]


class Space:
    """A compiled search space.

    `points_to_evaluate`: presets, each for one of the first samples; the parameters that a preset
    leaves open are sampled, and open grids are run through. With `constant_grid_search`, all grid
    combinations of one sample share the same random values.

    Raises InvalidSearchSpace, naming the key, for a space or a preset that cannot be sampled.
    """

    __slots__ = ("_constant", "_ends", "_presets", "_template", "notices")

    def __init__(
        self,
        space: Mapping[str, Any],
        *,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        constant_grid_search: bool = False,
    ) -> None:
        notices: list[str] = []
        self._template = compile_space(space, None, "param_space", notices)
        self._presets = [
            compile_space(space, point, f"points_to_evaluate[{i}]", notices)
            for i, point in enumerate(points_to_evaluate or ())
        ]
        self._ends = list(accumulate(preset.size for preset in self._presets))
        self._constant = constant_grid_search
        self.notices = tuple(notices)
        """Warnings about the presets: values that their domains never have."""

    @property
    def grid_size(self) -> int:
        """The number of grid combinations, 1 without a grid."""
        return self._template.size

    def total(self, num_samples: int) -> int | None:
        """The number of variants; None for -1 (no limit). Raises InvalidSearchSpace."""
        if num_samples == -1:
            return None
        if num_samples < 0:
            raise InvalidSearchSpace(
                f"num_samples must be a number of samples, or -1 for no limit, not {num_samples}"
            )
        left = max(0, num_samples - len(self._presets))
        return self._preset_total + left * self._template.size

    def stream(self, index: int) -> int:
        """The number of the random stream of variant `index`, the seed of its generator.

        It is `index` itself or, with `constant_grid_search`, the first index of its sample.
        """
        return index - self._locate(index)[1] if self._constant else index

    def variant(self, index: int, rng: Random) -> Variant:
        """Configuration number `index` (from 0), drawn from a fresh generator.

        Seed the generator with the experiment's seed and `stream(index)`. Calls the user's
        `sample_from` functions. Raises InvalidSearchSpace, naming the key, if one of them raises
        or if they wait for each other.
        """
        template, combination = self._locate(index)
        config = template.draw(combination, rng)
        return Variant(index=index, config=config, evaluated=template.evaluated(config))

    @property
    def _preset_total(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _locate(self, index: int) -> tuple[Template, int]:
        if index >= self._preset_total:
            return self._template, (index - self._preset_total) % self._template.size
        number = bisect_right(self._ends, index)
        preset = self._presets[number]
        return preset, index - self._ends[number] + preset.size
