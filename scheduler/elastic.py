"""How many bundles a trial gets that may do with fewer than it asks for.

It begins with as many as there are, goes on with one less where one is lost, and takes more from a
checkpoint on when there are more. What was lost counts as gone for a while: on one machine nobody
says that it is back.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.scheduler.state import State
from holdfast.trial.errors import OF_THE_PROCESS, Failure
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import Trial


def sizes(trial: Trial, now: float) -> Iterator[PlacementGroupFactory]:
    """What it could be launched with, the most first."""
    resources = trial.spec.resources
    for count in range(_most(trial, now), resources.least_bundles - 1, -1):
        yield resources.first(count)


def does_with_less(trial: Trial, failure: Failure) -> bool:
    """Whether what was lost with a process is no failure, since the others go on without it."""
    return failure.kind in OF_THE_PROCESS and trial.bundles > trial.spec.resources.least_bundles


def may_grow(state: State, trial: Trial) -> bool:
    """Whether there is room for another bundle that nobody waits for."""
    more = trial.next_bundle
    if more is None or not trial.has_room or state.placement.queue:
        return False
    return trial.bundles < _most(trial, state.now) and state.placement.capacity.has_room(more)


def _most(trial: Trial, now: float) -> int:
    resources = trial.spec.resources
    whole = len(resources.bundles)
    if now >= trial.shrunk_until:
        return whole
    # A restore may have raised the least since the loss, and nothing would wake who waits for it.
    return max(min(trial.shrunk_to, whole), resources.least_bundles)
