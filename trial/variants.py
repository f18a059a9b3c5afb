"""From a search space to configurations: every grid combination times the number of samples.

A space is compiled once into nodes; the i-th configuration is then a pure function of the space,
of i and of the generator handed in: after a restore the trials not yet created come out the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any, Final, NamedTuple, Protocol

from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.space import (
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    Normal,
    Random,
    below,
    grid_values,
    is_grid,
    same,
)
from holdfast.trial.values import (
    Path,
    Ref,
    Spec,
    Waiting,
    detach,
    is_plain,
    key_name,
    summarize,
    unwrap_scalar,
)

_SHOWN_CHARS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One configuration: `evaluated` holds its varied parameters only, by names as `net/width`.

    `config` has a Ref for each value of the space that is not plain. What a `sample_from` function
    returned, and what a point of `points_to_evaluate` brought along, is in it as it is: the shell
    makes Opaques of it (`values.seal`) before it is journalled.
    """

    index: int
    config: dict[str, Any]
    evaluated: dict[str, Any]


class Space:
    """A search space, compiled.

    `points_to_evaluate`: presets, each for one of the first samples; what a preset leaves open is
    sampled, and grids it leaves open are run through. With `constant_grid_search` all grid
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
        self._template = _compile(space, None, "param_space", notices)
        self._presets = [
            _compile(space, point, f"points_to_evaluate[{i}]", notices)
            for i, point in enumerate(points_to_evaluate or ())
        ]
        self._ends = list(accumulate(preset.size for preset in self._presets))
        self._constant = constant_grid_search
        self.notices = tuple(notices)
        """What a user should be told about the presets: values that their domains never give."""

    @property
    def grid_size(self) -> int:
        """The number of grid combinations, 1 without a grid."""
        return self._template.size

    def total(self, num_samples: int) -> int | None:
        """How many variants there are; None (endless) for -1. Raises InvalidSearchSpace."""
        if num_samples == -1:
            return None
        if num_samples < 0:
            raise InvalidSearchSpace(
                f"num_samples must be a number of samples, or -1 for endless; not {num_samples}"
            )
        left = max(0, num_samples - len(self._presets))
        return self._preset_total + left * self._template.size

    def stream(self, index: int) -> int:
        """The number of the random stream of variant `index`: seed its generator with that.

        It is `index` itself, or with `constant_grid_search` the first index of its sample.
        """
        return index - self._locate(index)[1] if self._constant else index

    def variant(self, index: int, rng: Random) -> Variant:
        """Configuration number `index` (from 0), drawn from a fresh generator.

        The generator is to be seeded by the experiment's seed and `stream(index)`. Calls
        the user's `sample_from` functions. Raises InvalidSearchSpace, naming the key, when
        one of them raises or when they wait for each other.
        """
        template, combination = self._locate(index)
        config = template.draw(combination, rng)
        return Variant(index=index, config=config, evaluated=template.evaluated(config))

    @property
    def _preset_total(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _locate(self, index: int) -> tuple[_Template, int]:
        if index >= self._preset_total:
            return self._template, (index - self._preset_total) % self._template.size
        number = bisect_right(self._ends, index)
        preset = self._presets[number]
        return preset, index - self._ends[number] + preset.size


def has_user_code(space: Mapping[str, Any]) -> bool:
    """Whether drawing from `space` runs functions of the user's."""
    ours = (Float, Integer, Normal, Categorical)
    return any(not isinstance(domain, ours) for domain in _domains(space))


def describe(space: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `space` is, as JSON and msgpack hold it: path, text and whether it is varied, per key.

    Of values that are not plain it tells only the type, and of functions nothing, so that a
    restore may replace them.
    """
    return [
        {"path": list(path), "text": _text(value), "varied": _is_searched(value)}
        for path, value in _parts(space, ())
    ]


def differences(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[str]:
    """What changed between two descriptions, a line for each key; empty where nothing did.

    The order of the varied keys counts too: it decides which random number goes to which.
    """
    before, after = _texts(old), _texts(new)
    lines = [
        "{}: was {}, now {}".format(
            key_name(path), *_excerpts(before.get(path, "absent"), after.get(path, "absent"))
        )
        for path in before | after
        if before.get(path) != after.get(path)
    ]
    was, now = _varied_names(old), _varied_names(new)
    if not lines and was != now:
        lines.append(f"order of the varied keys: was {', '.join(was)}, now {', '.join(now)}")
    return lines


class _Draw:
    """What one configuration under construction still has to get."""

    __slots__ = ("computed", "grids", "refs", "rng", "tuples")

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.grids: list[tuple[Any, Any, _Grid]] = []
        self.computed: list[tuple[Any, Any, _Computed]] = []
        self.refs: list[tuple[Any, Any, Ref]] = []
        self.tuples: list[tuple[Any, Any]] = []


# Nodes are named tuples: a frozen dataclass costs the import 0.8 ms, one of these 0.1 ms.
class _Node(Protocol):
    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        """Puts a value under `key`, or notes in `draw` what puts it there later."""


class _Constant(NamedTuple):
    value: Any

    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        container[key] = self.value


class _Copied(NamedTuple):
    value: Any

    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        container[key] = _copy(self.value)


class _Named(NamedTuple):
    value: Any
    ref: Ref

    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        container[key] = self.value  # sample_from functions read the value itself
        draw.refs.append((container, key, self.ref))


class _Drawn(NamedTuple):
    domain: Domain

    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        container[key] = self.domain.sample(draw.rng)


class _Chosen(NamedTuple):
    children: tuple[_Node, ...]

    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        self.children[below(len(self.children), draw.rng)].place(draw, container, key)


class _Computed(NamedTuple):
    function: Function
    name: str

    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        container[key] = Waiting(name=self.name)
        draw.computed.append((container, key, self))

    def missing(self, config: dict[str, Any], draw: _Draw, container: Any, key: Any) -> list[str]:
        """Asks the function; returns the names that it still waits for."""
        missed: list[str] = []
        try:
            value = detach(self._settle(Spec(config, missed), draw.rng))
        except Exception as error:  # the user's code: said to the user, unless it only came early
            if not missed:
                raise InvalidSearchSpace(
                    f"{self.name}: sample_from's function raised {type(error).__name__}: {error}"
                ) from error
        if not missed:
            container[key] = value
        return missed

    def _settle(self, spec: Spec, rng: Random) -> Any:
        value = self.function.call(spec)
        while isinstance(value, Domain):
            value = value.call(spec) if isinstance(value, Function) else value.sample(rng)
        return value


class _Dict(NamedTuple):
    items: tuple[tuple[str, _Node], ...]

    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        values: dict[str, Any] = {}
        container[key] = values
        for name, child in self.items:
            child.place(draw, values, name)


class _List(NamedTuple):
    children: tuple[_Node, ...]
    is_tuple: bool

    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        container[key] = values = [None] * len(self.children)
        if self.is_tuple:
            draw.tuples.append((container, key))
        for i, child in enumerate(self.children):
            child.place(draw, values, i)


class _Grid(NamedTuple):
    """Placed last: what is drawn outside grids is then the same in every combination."""

    children: tuple[_Node, ...]
    ends: tuple[int, ...]  # after child i, so many combinations are used up

    def place(self, draw: _Draw, container: Any, key: Any) -> None:
        container[key] = None
        draw.grids.append((container, key, self))

    def pick(self, combination: int) -> tuple[_Node, int]:
        number = bisect_right(self.ends, combination)
        return self.children[number], combination - (self.ends[number - 1] if number else 0)


class _Template(NamedTuple):
    """A compiled space: `varied` are the parameters to show, `size` its grid combinations."""

    root: _Node
    varied: tuple[tuple[str, Path], ...]
    size: int

    def draw(self, combination: int, rng: Random) -> dict[str, Any]:
        draw = _Draw(rng)
        top: dict[str, dict[str, Any]] = {}
        self.root.place(draw, top, "config")
        if draw.grids:
            _place_grids(draw, combination)
        if draw.computed:
            _compute(draw, top["config"])
        for container, key, ref in draw.refs:
            container[key] = ref
        for container, key in reversed(draw.tuples):  # inner ones were noted last
            container[key] = tuple(container[key])
        return top["config"]

    def evaluated(self, config: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, path in self.varied:
            value: Any = config
            for step in path:
                value = value[step]
            _spread(found, name, value)
        return found


class _Spot(NamedTuple):
    """Where a value stands: in the configuration, and (through categories) in the search space."""

    config: Path = ()
    space: Path = ()
    number: int | None = None
    is_varied: bool = False  # inside a parameter that is already known to vary
    is_chosen: bool = False  # inside a choice, where a grid cannot be counted
    is_preset: bool = False  # brought by a preset: not in the space, so no Ref can name it

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
    """Turns values of a space into nodes; `varied` and `notices` are found on the way."""

    def __init__(self, label: str, notices: list[str]) -> None:
        self.label = label
        self.notices = notices
        self.varied: list[Path] = []

    def compile(self, value: Any, spot: _Spot) -> _Node:
        value = unwrap_scalar(value)
        searched = _is_searched(value)
        if is_plain(value) and not searched:
            container = isinstance(value, (dict, list, tuple))
            return _Copied(_copy(value)) if container else _Constant(value)
        if isinstance(value, Domain) or is_grid(value):
            return self._searched(value, spot)
        if type(value) in (dict, list, tuple) or searched:
            node = self._container(value, spot)
            if node is not None:
                return node
        if spot.is_preset:
            return _Constant(value)
        summary = summarize(value, spot.number)
        return _Named(value, Ref(path=spot.space, index=spot.number, summary=summary))

    def overlay(self, value: Any, preset: Any, spot: _Spot) -> _Node:
        """Compiles `value` with what `preset` says of it in its place."""
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
        return _Dict(tuple(items))

    def _searched(self, value: Any, spot: _Spot) -> _Node:
        self._note_varied(spot)
        if is_grid(value):
            return self._grid(value, spot)
        if isinstance(value, Function):
            return _Computed(value, spot.name)
        if not isinstance(value, Categorical):
            return _Drawn(value)
        inner = spot._replace(is_chosen=True)
        return _Chosen(self._categories(value.categories, inner))

    def _grid(self, value: Any, spot: _Spot) -> _Grid:
        if spot.is_chosen:
            raise self._error(spot, "a grid_search inside a choice has no fixed number of trials")
        try:
            values = grid_values(value) or ()
        except InvalidSearchSpace as error:
            raise self._error(spot, str(error)) from None
        children = self._categories(values, spot)
        return _Grid(children, tuple(accumulate(map(_size, children))))

    def _categories(self, values: Sequence[Any], spot: _Spot) -> tuple[_Node, ...]:
        return tuple(self.compile(value, spot.category(i)) for i, value in enumerate(values))

    def _container(self, value: Any, spot: _Spot) -> _Node | None:
        """The node of a dict, list or tuple; None for one with odd keys and nothing to sample."""
        if not isinstance(value, dict):
            if type(value) not in (list, tuple):
                kind = type(value).__name__
                raise self._error(spot, f"a {kind} holds domains; use a plain list or tuple")
            children = tuple(self.compile(v, spot.inside(i)) for i, v in enumerate(value))
            return _List(children, type(value) is tuple)
        odd = [key for key in value if not (type(key) is str and is_plain(key))]
        if not odd:
            items = ((key, self.compile(item, spot.inside(key))) for key, item in value.items())
            return _Dict(tuple(items))
        if _is_searched(value) or not spot.config:
            raise self._error(spot, f"keys must be text, not {odd[0]!r}")
        return None

    def _fix(self, value: Any, preset: Any, spot: _Spot) -> _Node:
        self._note_varied(spot)
        preset = unwrap_scalar(preset)
        if _is_searched(preset):
            raise self._error(spot, "a preset must be a value, not a domain")
        categories = value.categories if isinstance(value, Categorical) else grid_values(value)
        for match in (_is_identical, same):
            for i, category in enumerate(categories or ()):
                if match(unwrap_scalar(category), preset):
                    return self.compile(category, spot.category(i))
        if not (value.is_valid(preset) if isinstance(value, Domain) else same(value, preset)):
            self.notices.append(
                f"{self.label}: {spot.name}: {_text(preset)}, where param_space has {_text(value)}"
            )
        return self.compile(preset, spot._replace(is_preset=True, is_varied=True))

    def _note_varied(self, spot: _Spot) -> None:
        if not spot.is_varied:
            self.varied.append(spot.config)

    def _error(self, spot: _Spot, rule: str) -> InvalidSearchSpace:
        where = dict.fromkeys((self.label, spot.name))  # once, where the space itself is meant
        return InvalidSearchSpace(f"{': '.join(where)}: {rule}")


def _compile(
    space: Mapping[str, Any], preset: Mapping[str, Any] | None, label: str, notices: list[str]
) -> _Template:
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
    return _Template(root, varied, _size(root))


def _size(node: _Node) -> int:
    match node:
        case _Grid(ends=ends):
            return ends[-1]
        case _Dict(items=items):
            return prod(_size(child) for _, child in items)
        case _List(children=children):
            return prod(map(_size, children))
        case _:
            return 1


def _place_grids(draw: _Draw, combination: int) -> None:
    """Puts each grid's value: the first grid changes fastest, one inside its values before it."""
    waiting, draw.grids = draw.grids, []
    for container, key, grid in waiting:
        combination, own = divmod(combination, grid.ends[-1])
        child, rest = grid.pick(own)
        child.place(draw, container, key)
        _place_grids(draw, rest)


def _compute(draw: _Draw, config: dict[str, Any]) -> None:
    """Asks the sample_from functions, in any order, until each has what it reads."""
    waiting = draw.computed
    while waiting:
        missing = [node.missing(config, draw, container, key) for container, key, node in waiting]
        left = [(slot, names) for slot, names in zip(waiting, missing, strict=True) if names]
        if len(left) == len(waiting):
            needs = "; ".join(f"{slot[2].name} needs {names[0]}" for slot, names in left)
            raise InvalidSearchSpace(f"sample_from functions wait for each other: {needs}")
        waiting = [slot for slot, _ in left]


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _copy(item) for key, item in value.items()}
    if kind is list:
        return [_copy(item) for item in value]
    return tuple(map(_copy, value)) if kind is tuple else value


def _spread(found: dict[str, Any], name: str, value: Any) -> None:
    if type(value) is dict and value:
        for key, item in value.items():
            _spread(found, f"{name}/{key}", item)
    else:
        found[name] = value


def _is_identical(one: object, other: object) -> bool:
    return one is other


def _is_searched(value: Any) -> bool:
    if isinstance(value, Domain) or is_grid(value):
        return True
    if isinstance(value, (dict, list, tuple)):
        return any(map(_is_searched, value.values() if isinstance(value, dict) else value))
    return False


def _domains(value: Any) -> Iterator[Domain]:
    if isinstance(value, Domain):
        yield value
    if isinstance(value, Categorical):
        value = value.categories
    if isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _domains(item)


def _parts(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    value = unwrap_scalar(value)
    searched = _is_searched(value)
    if isinstance(value, dict) and value and not is_grid(value) and (searched or _has_text(value)):
        for key, item in value.items():
            yield from _parts(item, (*path, key))
    elif isinstance(value, (list, tuple)) and (searched or not is_plain(value)):
        for i, item in enumerate(value):
            yield from _parts(item, (*path, i))
    elif path:
        yield path, value


def _has_text(value: dict[Any, Any]) -> bool:
    return type(value) is dict and all(type(key) is str for key in value)


def _text(value: Any) -> str:
    value = unwrap_scalar(value)
    if isinstance(value, Categorical):
        return f"choice([{_joined(value.categories)}])"
    if is_grid(value):
        return f"grid_search([{_joined(grid_values(value) or ())}])"
    if isinstance(value, (Float, Integer, Normal, Function)):
        return str(value)
    if is_plain(value):
        return repr(value)
    if type(value) is list or type(value) is tuple:
        return f"[{_joined(value)}]" if type(value) is list else f"({_joined(value)})"
    if _has_text(value):
        return f"{{{', '.join(f'{key!r}: {_text(item)}' for key, item in value.items())}}}"
    return f"<{type(value).__name__}>"


def _joined(values: Sequence[Any]) -> str:
    return ", ".join(map(_text, values))


def _texts(description: Sequence[Mapping[str, Any]]) -> dict[Path, str]:
    return {tuple(entry["path"]): entry["text"] for entry in description}


def _varied_names(description: Sequence[Mapping[str, Any]]) -> list[str]:
    return [key_name(tuple(entry["path"])) for entry in description if entry["varied"]]


def _excerpts(was: str, now: str) -> tuple[str, str]:
    """Both texts, cut around their first difference where they are long."""
    if max(len(was), len(now)) <= _SHOWN_CHARS:
        return was, now
    pairs = enumerate(zip(was, now, strict=False))
    shared = next((i for i, (a, b) in pairs if a != b), min(len(was), len(now)))
    start = max(0, shared - _SHOWN_CHARS // 2)
    return _excerpt(was, start), _excerpt(now, start)


def _excerpt(text: str, start: int) -> str:
    end = start + _SHOWN_CHARS
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"
