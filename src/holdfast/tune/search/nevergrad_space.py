"""Search spaces as Nevergrad writes them: a Dict, an Instrumentation, or an Array with names."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.global_numbers import seeded_numpy
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment, Same
from holdfast.trial.values import unwrap_scalar
from holdfast.tune.search.library import nested

_WHAT = "an Instrumentation of keywords or a Dict, or an Array with a list of names as space"


class ValueSpace:
    """See `library.AssignmentCodec`: an assignment has the values of the keywords, of the keys, or
    of the named elements of an array.

    Raises InvalidSearchSpace for a parametrization without names.
    """

    def __init__(self, parametrization: Any, names: Sequence[str]) -> None:
        self.parametrization = parametrization
        self._elements = tuple(names)
        with seeded_numpy(0):  # a Choice may be drawn for this
            self._example = parametrization.value
        array = _array(self._example)
        size = array.size if isinstance(array, np.ndarray) else 0
        if names and len(names) != size:
            raise InvalidSearchSpace(
                f"space has {len(names)} names, for an array of {size} numbers"
            )
        if not names and not _is_dict(self._example) and not _keywords(self._example):
            raise InvalidSearchSpace(
                f"Nevergrad's {type(parametrization).__name__} has no names for a config: write "
                f"{_WHAT}"
            )
        self._names = self._elements or list(self._named(self._example))

    def read(self, candidate: Any) -> Assignment:
        """The assignment of a candidate."""
        return self._named(candidate.value)

    def _named(self, value: Any) -> dict[str, Any]:
        if self._elements:
            numbers = np.ravel(_array(value)).tolist()
            return dict(zip(self._elements, numbers, strict=True))
        found: dict[str, Any] = _plain(value if _is_dict(value) else _keywords(value))
        return found

    def value(self, assignment: Assignment) -> Any:
        """The library's value for an assignment: the inverse of `read`."""
        value = self._example
        if self._elements:
            numbers = np.reshape(
                [assignment[name] for name in self._elements], np.shape(_array(value))
            )
            return ((numbers,), {}) if isinstance(value, tuple) else numbers
        return dict(assignment) if _is_dict(value) else ((), dict(assignment))

    def config(self, assignment: Assignment) -> dict[str, Any]:
        return nested(assignment.items())

    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return nested((name, value) for name, value in self._found(config).items())

    def assignment(self, config: Mapping[str, Any], label: str, alike: Same) -> Assignment:
        known = self._found(config)
        tops = {name.partition("/")[0] for name in self._names}
        if strange := [key for key in config if key not in tops]:
            names = ", ".join(map(repr, self._names))
            raise InvalidSearchSpace(
                f"{label}: {strange[0]} is not in the search space, only {names}"
            )
        return known

    def fit(self, assignment: Assignment, who: str) -> Assignment:
        if missing := [name for name in self._names if name not in assignment]:
            raise InvalidSearchSpace(f"{missing[0]}: {who} returned no value for it")
        return assignment

    def complete(self, assignment: Assignment, rng: random.Random) -> Assignment:
        seed = int(rng.random() * 2**32)
        with seeded_numpy(seed):
            drawn = self.parametrization.copy()
            drawn.random_state = np.random.RandomState(seed)
            return {**self.read(drawn.sample()), **assignment}

    def _found(self, config: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name in self._names:
            place: Any = config
            for key in name.split("/"):
                place = place.get(key, _ABSENT) if isinstance(place, Mapping) else _ABSENT
            if place is not _ABSENT:
                found[name] = place
        return found


_ABSENT = object()


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _keywords(value: Any) -> dict[str, Any]:
    """The keywords of an Instrumentation without positional arguments; {} for anything else."""
    match value:
        case ((), dict() as keywords):
            return keywords
        case _:
            return {}


def _array(value: Any) -> Any:
    """The array of an Instrumentation of one, or of a parametrization that is one."""
    match value:
        case ((array,), {}):
            return array
        case _:
            return value


def _plain(value: Any) -> Any:
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    return unwrap_scalar(value)
