"""The search spaces of one experiment, and the configs that a person has added to them.

A restore may have replaced the first space. A trial's config refers to the user's objects by their
path in the space that it was made from (`Ref`). Paths in the first space are unchanged; those in a
later one start with its number, which cannot be a key of a space, because keys are text. A search
chooses only a part of a space: `overlaid` adds the fixed part.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from typing import Any

from holdfast.names import shown
from holdfast.schema import check_table
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.metrics import near_text
from holdfast.trial.search_space.variants import Space, Variant, compile_space
from holdfast.trial.space import (
    Categorical,
    Domain,
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
    flatten,
    is_plain,
    key_name,
    replace_leaves,
    spread,
    unwrap_scalar,
    value_at,
)


def combined(spaces: Mapping[int, Mapping[str, Any]]) -> dict[Any, Any]:
    """One mapping, for `fold_values`, in which each config finds its values."""
    later = {number: space for number, space in spaces.items() if number}
    return {**spaces.get(0, {}), **later}


def separated(values: Mapping[Any, Any]) -> dict[int, Mapping[str, Any]]:
    """The spaces, by their numbers, that `combined` was called with."""
    later = {key: space for key, space in values.items() if isinstance(key, int)}
    first = {key: value for key, value in values.items() if not isinstance(key, int)}
    return {0: first, **later}


def placed(ref: Ref, number: int) -> Ref:
    """`ref` with the number of its space, as `combined` has it; unchanged if it already has
    one."""
    is_placed = not number or isinstance(ref.path[0], int)
    return ref if is_placed else replace(ref, path=(number, *ref.path))


def placed_in(config: dict[str, Any], number: int) -> dict[str, Any]:
    """`config`, made from space `number`, with each reference `placed`."""
    if not number:
        return config
    found: dict[str, Any] = replace_leaves(
        config, lambda _, leaf: placed(leaf, number) if isinstance(leaf, Ref) else leaf
    )
    return found


def spaces_of(config: Mapping[str, Any]) -> frozenset[int]:
    """The numbers of the spaces from which `config` needs values."""
    found: set[int] = set()

    def note(_: Path, leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            head = leaf.path[0]
            found.add(head if isinstance(head, int) else 0)

    replace_leaves(dict(config), note)
    return frozenset(found)


def could_suggest(space: Mapping[str, Any], searched: Set[str], answer: Mapping[str, Any]) -> bool:
    """True if a search of `space` could have returned `answer`, which is from an earlier space.

    `searched` are the keys of `space` that a search chooses.
    """
    try:
        notices = Space(space, points_to_evaluate=[answer]).notices
    except InvalidSearchSpace:
        return False
    return not notices and searched <= set(flatten(answer))


def searched_in(space: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys of `space` with a domain or a grid."""
    if isinstance(space, Domain) or is_grid(space) or _is_searched_list(space):
        yield path
    elif isinstance(space, Mapping):
        for key, value in space.items():
            yield from searched_in(value, (*path, str(key)))


def named(paths: Sequence[Path]) -> str:
    return ", ".join(repr(key_name(path)) for path in paths)


def without_searched(space: Mapping[str, Any]) -> dict[str, Any]:
    """The fixed part of `space`."""
    return {
        key: without_searched(value) if type(value) is dict else value
        for key, value in space.items()
        if not (isinstance(value, Domain) or is_grid(value) or _is_searched_list(value))
    }


def _is_searched_list(value: Any) -> bool:
    """True if a search returns the whole list, including its fixed items."""
    return isinstance(value, (list, tuple)) and is_searched(value)


def overlaid(fixed: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """`chosen` merged over `fixed`, also in nested dicts."""
    merged = dict(fixed)
    for key, value in chosen.items():
        below = merged.get(key)
        nested = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = overlaid(below, value) if nested else value  # type: ignore[arg-type]
    return merged


class Continued:
    """The variants of a new space to create in addition to existing trials.

    Each grid combination is run `num_samples` times in total: a trial with the values of a
    combination counts for it, whatever else its config has. Without a grid there is one
    combination, and every trial counts. Values that are not plain, and those of a grid with other
    values, are not recognized and count as new.
    """

    def __init__(
        self, space: Mapping[str, Any], size: int, configs: Sequence[Mapping[str, Any]]
    ) -> None:
        grids = list(_grids(space, ()))
        known = prod(len(values) for _, values in grids) == size
        made = Counter(_combination(grids, config) for config in configs) if known else Counter()
        made.pop(None, None)
        skipped = sorted(
            sample * size + combination
            for combination, samples in made.items()
            if combination is not None
            for sample in range(samples)
        )
        self._size = size
        self._skipped = skipped
        self._behind = [variant - before for before, variant in enumerate(skipped)]

    def variant(self, position: int) -> int:
        """The number of the variant at this position, from 0, among those to create."""
        return position + bisect_right(self._behind, position)

    def total(self, num_samples: int) -> int | None:
        """The number of variants to create; None, without end, for -1."""
        if num_samples == -1:
            return None
        every = num_samples * self._size
        return every - sum(variant < every for variant in self._skipped)


def _grids(space: Any, path: Path) -> Iterator[tuple[Path, Sequence[Any]]]:
    """Each grid with its path, in the order in which their values are run through."""
    if is_grid(space):
        yield path, grid_values(space) or ()
    elif isinstance(space, (dict, list, tuple)):
        items = space.items() if isinstance(space, dict) else enumerate(space)
        for key, value in items:
            yield from _grids(value, (*path, key))


def _combination(
    grids: Sequence[tuple[Path, Sequence[Any]]], config: Mapping[str, Any]
) -> int | None:
    """The number of the grid combination of `config`; None if it has none. The first grid changes
    fastest."""
    number, weight = 0, 1
    for path, values in grids:
        at = _index(values, value_at(config, path))
        if at is None:
            return None
        number, weight = number + at * weight, weight * len(values)
    return number


def _index(values: Sequence[Any], value: Any) -> int | None:
    for at, one in enumerate(map(unwrap_scalar, values)):
        if is_plain(one) and same(one, value):
            return at
    return None


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
