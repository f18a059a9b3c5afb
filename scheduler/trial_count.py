"""The number of trials that an experiment plans, and what a plain restore has left to do."""

from __future__ import annotations

from dataclasses import replace

from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.trial.config import PLANNED


def planned(spec: ExperimentSpec, total: int | None) -> ExperimentSpec:
    """`spec` with the number of trials that its search will create, None for no limit.

    Readers of the records cannot ask the search.
    """
    return replace(spec, options={**spec.options, PLANNED: total})


def planned_as(spec: ExperimentSpec, other: ExperimentSpec) -> ExperimentSpec:
    """`spec` with the number of trials of `other`: this number follows from the rest, so it is no
    difference."""
    if PLANNED not in other.options:
        return spec
    return planned(spec, other.options[PLANNED])


def not_created(machine: Machine) -> int | None:
    """The number of trials that the search has yet to create; None if the records do not say."""
    if machine.search_ended:
        return 0
    total = machine.spec.options.get(PLANNED)
    return max(0, total - made_by_search(machine)) if type(total) is int else None


def made_by_search(machine: Machine) -> int:
    """The number of trials without those that a person has added."""
    return sum(not trial.spec.is_added for trial in machine.trials.values())


def has_rest(machine: Machine) -> bool:
    """True if a plain restore has trials to finish or to create."""
    is_final = all(trial.status.is_final for trial in machine.trials.values())
    return not (is_final and (machine.search_ended or not_created(machine) == 0))
