"""The state of a search over a library as plain data: `LibrarySearch.save` writes it as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.parameters import Assignment
from holdfast.tune.search.study import Losses

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTrial:
    """A trial's values, as an assignment, and its losses; None if it failed."""

    values: Assignment
    losses: Losses | None
    pruned: bool = False

    @classmethod
    def of(cls, given: Any) -> Self:
        """Raises ValueError."""
        losses = given["losses"]
        is_fine = losses is None or (losses and all(map(_is_finite, losses)))
        if not is_fine or type(given["pruned"]) is not bool:
            raise ValueError
        values = {str(name): value for name, value in dict(given["values"]).items()}
        found = None if losses is None else tuple(map(float, losses))
        return cls(values=values, losses=found, pruned=given["pruned"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSearch:
    """`searcher` is the name of its class, `suggested` how many configs it has suggested."""

    searcher: str
    suggested: int = 0
    ended: Sequence[EndedTrial] = ()

    def as_dict(self) -> dict[str, Any]:
        ended = [
            {
                "values": dict(one.values),
                "losses": None if one.losses is None else list(one.losses),
                "pruned": one.pruned,
            }
            for one in self.ended
        ]
        return {
            "version": _VERSION,
            "searcher": self.searcher,
            "suggested": self.suggested,
            "ended": ended,
        }

    @classmethod
    def of(cls, state: Any, searcher: str) -> Self:
        """Raises InvalidConfig for the state of another class, and for anything else."""
        if not isinstance(state, Mapping) or "searcher" not in state:
            raise InvalidConfig(f"this is not a state that {searcher}.get_state() has returned")
        if state["searcher"] != searcher:
            raise InvalidConfig(
                f"this is the state of {state['searcher']!r:.60}, and not of {searcher}"
            )
        if state.get("version") != _VERSION:
            raise InvalidConfig(f"a newer version of holdfast has saved this {searcher}")
        try:
            suggested = state["suggested"]
            if type(suggested) is not int or suggested < 0:
                raise ValueError
            ended = [*map(EndedTrial.of, state["ended"])]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidConfig(f"the saved state of {searcher} is damaged") from error
        return cls(searcher=searcher, suggested=suggested, ended=ended)


def written(state: Mapping[str, Any], searcher: str) -> bytes:
    """Raises InvalidConfig for values that JSON does not have."""
    try:
        return json.dumps(state, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidConfig(
            f"{searcher} cannot be saved, because its configs have values other than text and "
            f"numbers ({error}): use get_state() and set_state()"
        ) from error


def parsed(content: bytes, name: str) -> dict[str, Any]:
    """Raises InvalidConfig for anything but JSON."""
    try:
        found = json.loads(content)
    except ValueError as error:
        raise InvalidConfig(
            f"{name} was not written by holdfast's save(): it is not JSON. Nothing of it was "
            f"loaded"
        ) from error
    return found if isinstance(found, dict) else {}


def _is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)
