"""The search spaces of one experiment: a restore may have replaced the first one.

A trial's config refers to the user's objects by their path in the space that it was made from
(`Ref`). Paths in the first space are unchanged; those in a later one start with its number, which
cannot be a key of a space, because keys are text. A search chooses only a part of a space:
`overlaid` adds the fixed part.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from typing import Any

from holdfast.trial.domains import Domain, same
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.variants import Space
from holdfast.trial.space import grid_values, is_grid, is_searched
from holdfast.trial.values import (
    Path,
    Ref,
    flatten,
    is_plain,
    key_name,
    replace_leaves,
    unwrap_scalar,
)

_MISSING = object()


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

    def look(_: Path, leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            head = leaf.path[0]
            found.add(head if isinstance(head, int) else 0)

    replace_leaves(dict(config), look)
    return frozenset(found)


def could_suggest(space: Mapping[str, Any], searched: Set[str], answer: Mapping[str, Any]) -> bool:
    """Whether a search of `space` could have returned `answer`, which is from an earlier space.

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


def has_value(config: Any, path: Path) -> bool:
    """Whether a config has a value at this place."""
    for key in path:
        if not isinstance(config, Mapping) or key not in config:
            return False
        config = config[key]
    return True


def without_searched(space: Mapping[str, Any]) -> dict[str, Any]:
    """The fixed part of `space`."""
    return {
        key: without_searched(value) if type(value) is dict else value
        for key, value in space.items()
        if not (isinstance(value, Domain) or is_grid(value) or _is_searched_list(value))
    }


def _is_searched_list(value: Any) -> bool:
    """Whether a search returns the whole list, including its fixed items."""
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
        at = _index(values, _at(config, path))
        if at is None:
            return None
        number, weight = number + at * weight, weight * len(values)
    return number


def _index(values: Sequence[Any], value: Any) -> int | None:
    for at, one in enumerate(map(unwrap_scalar, values)):
        if is_plain(one) and same(one, value):
            return at
    return None


def _at(config: Any, path: Path) -> Any:
    try:
        for step in path:
            config = config[step]
    except (LookupError, TypeError):
        return _MISSING
    return config
