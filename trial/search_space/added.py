"""Configs that a person adds to a running experiment: checked, and completed from the space."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from holdfast.names import shown
from holdfast.schema import check_table
from holdfast.trial.absent import near_text
from holdfast.trial.domains import Categorical, Random, below, same
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.compiler import compile_space
from holdfast.trial.search_space.spaces import overlaid, searched_in
from holdfast.trial.search_space.variants import Variant
from holdfast.trial.space import grid_values, is_grid
from holdfast.trial.values import spread, unwrap_scalar

_LABEL = "config"

# A value may have a megabyte, and the lines are shown in the run's output.
_LONGEST_LINE = 300


def checked_config(
    space: Mapping[str, Any], config: Any, others: Collection[str] | None = ()
) -> tuple[dict[str, Any], list[str]]:
    """The config with its values at their places in `space`, and a line for each value that its
    domain never has.

    `others` are names that only the search algorithm knows; None if it may know any. Raises
    InvalidConfig for what is not a table of JSON values, and for an unknown name.
    """
    try:
        check_table(config, "the config")
        _check_json(config)
        placed = _placed(space, config)
        known, more = _divided(space, placed)
        names = {} if others is None else dict.fromkeys(others)
        unknown = [] if others is None else [name for name in spread(more) if name not in names]
        if unknown:
            raise InvalidConfig(_unknown(unknown, {**space, **names}))
        notices: list[str] = []
        fitted = {name: _as_in_space(space[name], value) for name, value in known.items()}
        compile_space(dict(space), fitted, _LABEL, notices)
    except (ValueError, InvalidSearchSpace) as error:
        raise InvalidConfig(str(error)) from error
    lines = [line.removeprefix(f"{_LABEL}: ") for line in notices]
    return {**fitted, **more}, [
        line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..." for line in lines
    ]


def added_variant(
    space: Mapping[str, Any], config: Mapping[str, Any], rng: Random, index: int
) -> Variant:
    """The variant with these values, and with others from `space` where the config has none.

    Calls the user's `sample_from` functions. Raises InvalidSearchSpace.
    """
    known, more = _divided(space, config)
    template = compile_space(dict(space), known, _LABEL, [])
    drawn = template.draw(below(template.size, rng), rng)
    return Variant(
        index=index,
        config=overlaid(drawn, more),
        evaluated={**template.evaluated(drawn), **spread(more)},
    )


def chosen_of(space: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a config that a search of `space` chooses: the values of its domains, or, if it
    has none, those that have no place in it."""
    paths = list(searched_in(space))
    if not paths:
        return {name: value for name, value in config.items() if name not in space}
    chosen: dict[str, Any] = {}
    for *outer, last in paths:
        within, place = config, chosen
        for key in outer:
            within, place = within[key], place.setdefault(key, {})
        place[last] = within[last]
    return chosen


def _check_json(value: Any) -> None:
    """JSON has neither bytes nor keys other than text."""
    if isinstance(value, bytes):
        raise ValueError("the config has bytes, which JSON cannot represent")
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                raise ValueError(f"the config has the key {shown(key)}, which is not text")
            _check_json(item)
    elif isinstance(value, list):
        for item in value:
            _check_json(item)


def _placed(space: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with `net/width` as the value of `width` in `net`, if the space has that."""
    placed: dict[str, Any] = {}
    for name, value in config.items():
        first, slash, rest = name.partition("/")
        below_it = space.get(first)
        if name not in space and slash and type(below_it) is dict and not is_grid(below_it):
            value, name = _placed(below_it, {rest: value}), first
        elif type(value) is dict and type(space.get(name)) is dict:
            value = _placed(space[name], value)
        is_nested = type(value) is dict and type(placed.get(name)) is dict
        placed[name] = overlaid(placed[name], value) if is_nested else value
    return placed


def _divided(
    space: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values that have a place in `space`, and the others."""
    known: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in config.items():
        place = space.get(name)
        if name not in space:
            others[name] = value
        elif type(place) is dict and type(value) is dict and not is_grid(place):
            known[name], more = _divided(place, value)
            others |= {name: more} if more else {}
        else:
            known[name] = value
    return known, others


def _as_in_space(place: Any, value: Any) -> Any:
    """The value of a choice or a grid that `value` means: JSON has lists in place of tuples."""
    if type(place) is dict and type(value) is dict and not is_grid(place):
        return {name: _as_in_space(place[name], item) for name, item in value.items()}
    listed = place.categories if isinstance(place, Categorical) else grid_values(place) or ()
    several = [unwrap_scalar(one) for one in listed]
    if any(same(one, value) for one in several):
        return value
    return next((one for one in several if same(_in_json(one), value)), value)


def _in_json(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_in_json(item) for item in value]
    return {k: _in_json(v) for k, v in value.items()} if type(value) is dict else value


def _unknown(names: Iterable[str], known: Mapping[str, Any]) -> str:
    several = [*names]
    are = "is" if len(several) == 1 else "are"
    there = ", ".join(repr(name) for name in spread({**known})) or "nothing"
    return (
        f"{', '.join(map(shown, several))} {are} not in the search space, which has "
        f"{there}.{near_text(several, known)}"
    )
