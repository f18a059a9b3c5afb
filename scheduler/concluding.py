"""After an event: what is free is filled; where nothing runs any more, the run is at its end."""

from __future__ import annotations

from holdfast.scheduler.effects import Effect, Finish
from holdfast.scheduler.placing import fill, release_idle
from holdfast.scheduler.policy import Stalled
from holdfast.scheduler.state import State
from holdfast.scheduler.stopping import observe


def go_on(state: State) -> list[Effect]:
    """Fill what is free; at the end, finish."""
    return [*fill(state), *_conclude(state)]


def wake(state: State) -> list[Effect]:
    """Where all that have not ended are paused, let some go on, as the scheduler says."""
    placement = state.placement
    if placement.holds or placement.queue or placement.delayed or state.questions:
        return []
    effects = observe(state, Stalled())
    if not (state.ending or placement.holds or placement.queue or state.questions):
        for trial_id in state.paused:
            state.unpause(trial_id)
    return [*effects, *fill(state)]


def _conclude(state: State) -> list[Effect]:
    placement = state.placement
    if state.finished or placement.holds:
        return []
    if state.asking and not state.ending:
        return wake(state) if state.search_waits and state.paused else []
    if not state.ending:
        if placement.queue or placement.delayed or state.questions or not state.search_ended:
            return []
        if state.paused:
            return [*wake(state), *_conclude(state)]
    if placement.idle:
        return release_idle(state)
    state.finished = True
    if state.ending:
        return [Finish(reason=state.ending.reason, message=state.ending.message)]
    return [Finish(reason="done")]
