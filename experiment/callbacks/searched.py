"""The parameters of a trial that its experiment varies, named as in `net/width`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.trial.readable import readable
from holdfast.trial.search_space.description import text_of
from holdfast.trial.trial import Trial
from holdfast.trial.values import (
    LONGEST_WHOLE_TAG,
    Opaque,
    Ref,
    key_name,
    named_in_tag,
    spread,
)

_SCALARS: Final = (bool, int, float, str, type(None))


class Searched:
    """Finds the varied parameters of trials, given the description of the search space.

    Those are the parameters that the space varies, and those that are not in it: a search
    algorithm may have a space of its own. A trial's tag has only as many as fit into it.
    """

    def __init__(self, space: Sequence[Mapping[str, Any]] = ()) -> None:
        names = [(key_name(tuple(part["path"])), part) for part in space]
        self._heads: Final = [name for name, part in names if part["varied"]]
        self._fixed: Final = {name: part["text"] for name, part in names if not part["varied"]}

    def of(self, trial: Trial) -> dict[str, Any]:
        """The parameters with their current values. The user's objects are shown as text.

        If a scheduler has replaced a parameter by a dict, or a dict by something else, the values
        that are now in that place.
        """
        return {
            name: readable(value) if isinstance(value, (Ref, Opaque)) else value
            for name, value in self._found(trial).items()
        }

    def _found(self, trial: Trial) -> dict[str, Any]:
        spec, now = trial.spec, spread(trial.config)
        if self._heads or self._fixed or len(spec.tag) > LONGEST_WHOLE_TAG:
            return {name: value for name, value in now.items() if self._is_varied(name, value)}
        # Records without a space, and a tag from which nothing was left out.
        named = named_in_tag(spec.tag, spec.index, spec.config)
        if not trial.changed_config:
            return named
        return {known: now[known] for name in named for known in now if _is_same(known, name)}

    def _is_varied(self, name: str, value: Any) -> bool:
        if _overlaps(name, self._heads):
            return True
        if name in self._fixed:  # a search algorithm or a scheduler may have replaced the value
            return type(value) in _SCALARS and text_of(value) != self._fixed[name]
        return not _overlaps(name, self._fixed)


def _overlaps(name: str, others: Iterable[str]) -> bool:
    return any(_is_same(name, other) for other in others)


def _is_same(one: str, other: str) -> bool:
    """Whether they are the same parameter, or one contains the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
