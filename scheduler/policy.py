"""The seam of trial schedulers: look at what was reported, decide who stops, waits or goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.trial.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTrial:
    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseTrial:
    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseTrial:
    trial_id: str


Decision = StopTrial | PauseTrial | UnpauseTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReported:
    """`row` is what the trial reported, with the automatic metrics."""

    trial_id: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """The trial is TERMINATED or ERROR."""

    trial_id: str


Observation = TrialReported | TrialEnded


class View(Protocol):
    """What a policy may see of the experiment."""

    @property
    def trials(self) -> Mapping[str, Trial]: ...


class TrialScheduler:
    """Base of schedulers. `decide` is pure: the same view and event give the same decisions.

    A decision that does not fit its trial (stop one that has ended, pause one that does not run,
    unpause one that is not paused) changes nothing. A restore unpauses every trial.

    It may keep state of its own; the state is rebuilt on a restore by showing it the journal's
    events again, so it must depend on nothing else.
    """

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        raise NotImplementedError(f"{type(self).__name__} must define decide()")


class FIFOScheduler(TrialScheduler):
    """Every trial runs to its end, in the order in which it was suggested."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        return ()


def is_memoryless(policy: TrialScheduler | None) -> bool:
    """Whether it decides from the view alone, so that a snapshot will do in place of the events
    that another would have to be shown."""
    return policy is None or type(policy) is FIFOScheduler
