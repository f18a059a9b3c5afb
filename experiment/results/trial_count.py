"""How many trials an experiment is to have, and what a plain restore has left to do."""

from __future__ import annotations

from dataclasses import replace

from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine

_PLANNED = "trials"


def planned(spec: ExperimentSpec, total: int | None) -> ExperimentSpec:
    """`spec` with the number of trials that its search will create, None for without end: who
    reads the records has no search to ask."""
    return replace(spec, options={**spec.options, _PLANNED: total})


def planned_as(spec: ExperimentSpec, other: ExperimentSpec) -> ExperimentSpec:
    """`spec` with the number that `other` has: what follows from the rest makes no difference."""
    if _PLANNED not in other.options:
        return spec
    return planned(spec, other.options[_PLANNED])


def not_created(machine: Machine) -> int | None:
    """How many trials the search has yet to create; None where the records do not say."""
    if machine.search_ended:
        return 0
    total = machine.spec.options.get(_PLANNED)
    return max(0, total - len(machine.trials)) if type(total) is int else None


def has_rest(machine: Machine) -> bool:
    """Whether a plain restore has trials to finish or to create."""
    is_final = all(trial.status.is_final for trial in machine.trials.values())
    return not (is_final and (machine.search_ended or not_created(machine) == 0))
