"""The interface between the searches and the libraries."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Protocol

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number
from holdfast.trial.metrics import lookup
from holdfast.trial.search_space.parameters import Assignment, Same
from holdfast.trial.values import unwrap_scalar

Losses = tuple[float, ...]
_SIGNS: Final = {"min": 1.0, "max": -1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One config to try.

    `number` counts from 0, including points that were tried elsewhere. `seed` (32 bits) depends on
    the search's seed and the number: a study that draws only from it answers the same after a
    restore. `trial_id` is "" for a point that was tried elsewhere. `pruned`: the trial was stopped
    early. `is_given`: the user has answered it, not the library. `row`: the last report of a trial
    that has ended.
    """

    number: int
    seed: int
    trial_id: str = ""
    is_given: bool = False
    pruned: bool = False
    row: Mapping[str, Any] = field(default_factory=dict)


class Study(Protocol):
    """A library's part of one search. All calls come from one thread. A class that derives from it
    ignores `take` and `saw` unless it defines them.

    Values of an assignment are those of `Parameter.domain`, category numbers for choices. Smaller
    losses are better; there is one for each metric.
    """

    def ask(self, query: Query) -> Assignment | str | None:
        """The next config; None for "not now", `Searcher.FINISHED` for "no more".

        Parameters that do not exist are left out, and values are rounded to allowed ones.
        """

    def take(self, query: Query, assignment: Assignment) -> Assignment | None:
        """Take note of an answer by the user, or by `ask` before a restore.

        Returns another answer to use instead, or None.
        """
        return None

    def saw(self, query: Query, step: int, losses: Losses) -> None:
        """A trial has reported `losses` at the `training_iteration` `step`."""
        return None

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        """A trial has ended with `losses` in its last report; None for a failure."""


class AssignmentCodec(Protocol):
    """Converts configs to assignments and back: see `Parameters`."""

    def config(self, assignment: Assignment) -> dict[str, Any]: ...
    def known(self, config: Mapping[str, Any]) -> Mapping[str, Any]: ...
    def assignment(self, config: Mapping[str, Any], label: str, alike: Same) -> Assignment: ...
    def fit(self, assignment: Assignment, who: str) -> Assignment: ...
    def complete(self, assignment: Assignment, rng: random.Random) -> Assignment: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGoal:
    """The goal: each metric with its mode, "min" or "max"."""

    metrics: tuple[str, ...]
    modes: tuple[str, ...]

    def losses(self, row: Mapping[str, Any]) -> Losses | None:
        """The losses of a report; None if a metric is missing, not finite or not a number."""
        return self.losses_of([lookup(row, metric) for metric in self.metrics])

    def losses_of(self, values: Sequence[Any]) -> Losses | None:
        if not all(map(_is_finite, values)):
            return None
        return tuple(
            _SIGNS[mode] * float(value) for mode, value in zip(self.modes, values, strict=True)
        )


def _is_finite(value: Any) -> bool:
    value = unwrap_scalar(value)
    return is_number(value) and math.isfinite(value)
