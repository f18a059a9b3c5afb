"""Compiles a search space, as users write it, into the template that configurations are drawn
from.

Values that cannot be counted or placed (a grid inside a choice, a preset for a missing key) are
rejected here, with their key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import is_
from typing import Any, NamedTuple

from holdfast.trial.domains import Categorical, Domain, Function, same
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.readable import excerpt
from holdfast.trial.search_space.description import text_of
from holdfast.trial.search_space.template import (
    Chosen,
    Computed,
    Constant,
    Copied,
    Dict,
    Drawn,
    Grid,
    List,
    Node,
    Template,
    TemplateName,
    copy,
    size,
)
from holdfast.trial.space import grid_values, is_grid, is_searched
from holdfast.trial.values import (
    Path,
    Ref,
    has_text_keys,
    is_plain,
    key_name,
    summarize,
    unwrap_scalar,
)


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
