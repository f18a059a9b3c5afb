"""The trials that no other beats in all goals at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.dataclass import dataclass
from holdfast.experiment.progress.summarizer import value_of
from holdfast.scheduler.policies.pareto import dominates
from holdfast.text.values import counted
from holdfast.trial.trial import Trial

_SIGNS: Final = {"max": 1.0, "min": -1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A trial and its last value of each goal, in the order of the goals."""

    trial: Trial
    values: tuple[float, ...]


def placed(trials: Iterable[Trial], goals: Iterable[str]) -> list[Placed]:
    """The trials with a finite last value of each goal that violate no constraint."""
    names = list(goals)
    found = ((trial, values_of(trial, names)) for trial in trials if not trial.is_infeasible)
    return [Placed(trial=trial, values=values) for trial, values in found if values is not None]


def values_of(trial: Trial, goals: Iterable[str]) -> tuple[float, ...] | None:
    """The trial's last value of each goal; None if one is missing or not finite."""
    values = [value_of(trial, goal) for goal in goals]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def pareto_front(candidates: Iterable[Placed], goals: Mapping[str, str]) -> list[Placed]:
    """Those that no other dominates, the best by the first goal first; equal ones are all kept."""
    signs = [_SIGNS[mode] for mode in goals.values()]
    points = [
        (tuple(sign * value for sign, value in zip(signs, one.values, strict=True)), one)
        for one in candidates
    ]
    front: list[tuple[tuple[float, ...], Placed]] = []
    # In this order, only an earlier point can dominate a later one.
    for point, one in sorted(points, key=lambda pair: pair[0], reverse=True):
        if not any(dominates(other, point) for other, _ in front):
            front.append((point, one))
    return [one for _, one in front]


def front_text(count: int) -> str:
    """`3 trials on the Pareto front`."""
    return f"{counted(count, 'trial', 'trials')} on the Pareto front"


def goals_text(goals: Mapping[str, str]) -> str:
    """`accuracy (max), time_s (min)`."""
    return ", ".join(f"{metric} ({mode})" for metric, mode in goals.items())
