"""The seam between what all searches over libraries share and the library of each."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from holdfast.dataclass import dataclass
from holdfast.trial.search_space.parameters import Assignment, Same
from holdfast.trial.stopper import lookup
from holdfast.trial.values import unwrap_scalar

Losses = tuple[float, ...]
_SIGNS: Final = {"min": 1.0, "max": -1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One config that is to be tried.

    `number` counts from 0, points that were tried elsewhere included. `seed` (32 bits) follows
    from the search's seed and the number: who draws from it alone answers the same after a
    restore. `trial_id` is "" for a point that was tried elsewhere, and `pruned` says that it was
    given up early. `is_given`: the user has answered it, not the library.
    """

    number: int
    seed: int
    trial_id: str = ""
    is_given: bool = False
    pruned: bool = False


class Study(Protocol):
    """A library at work on one search. All calls come from one thread.

    Values of an assignment are those of `Parameter.domain`, category numbers for choices. Losses
    are smaller for the better, one for each metric.
    """

    def ask(self, query: Query) -> Assignment | str | None:
        """What to try next; None for «not now», `Searcher.FINISHED` for «no more».

        What does not exist is left out, and values are brought to the nearest that the parameters
        can have."""

    def take(self, query: Query, assignment: Assignment) -> Assignment | None:
        """This query is answered already: by the user, or by `ask` before a restore.

        What is returned is what becomes of it, None for the same."""

    def saw(self, query: Query, step: int, losses: Losses) -> None:
        """A trial has reported these at its `training_iteration` of `step`."""

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        """A trial has ended with these in its last report; None for a failure."""


class AssignmentCodec(Protocol):
    """How configs are assignments and back: see `Parameters`."""

    def config(self, assignment: Assignment) -> dict[str, Any]: ...
    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]: ...
    def assignment(self, config: Mapping[str, Any], label: str, alike: Same) -> Assignment: ...
    def fit(self, assignment: Assignment, who: str) -> Assignment: ...
    def complete(self, assignment: Assignment, rng: random.Random) -> Assignment: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGoal:
    """What is to be optimized: each metric with its mode, "min" or "max"."""

    metrics: tuple[str, ...]
    modes: tuple[str, ...]

    def losses(self, row: Mapping[str, Any]) -> Losses | None:
        """What a report is worth; None where a metric is missing, not finite or no number."""
        return self.losses_of([lookup(row, metric) for metric in self.metrics])

    def losses_of(self, values: Sequence[Any]) -> Losses | None:
        if not all(map(_is_finite, values)):
            return None
        return tuple(
            _SIGNS[mode] * float(value) for mode, value in zip(self.modes, values, strict=True)
        )


def _is_finite(value: Any) -> bool:
    value = unwrap_scalar(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)
