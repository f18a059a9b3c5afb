"""Ending one trial, pausing it, and what the scheduler orders; ending the whole experiment."""

from __future__ import annotations

from typing import assert_never

from holdfast.scheduler.effects import Effect, Halt, Preempt
from holdfast.scheduler.events import EndOrdered
from holdfast.scheduler.placing import fill
from holdfast.scheduler.policy import (
    Observation,
    PauseTrial,
    StopTrial,
    TrialEnded,
    UnpauseTrial,
)
from holdfast.scheduler.state import State
from holdfast.trial.lifecycle import Interrupted, PauseOrdered, StopOrdered
from holdfast.trial.trial import Status

# Reasons of EndOrdered after which an unfinished trial is left to be resumed.
RESUMABLE = ("interrupt", "preempted", "abort", "fail_fast", "errored")
# They count also where the run is ending already.
_URGENT = ("interrupt", "preempted", "abort")


def budget_spent(budget_s: float) -> EndOrdered:
    """The order that ends a run which has taken as long as it may."""
    return EndOrdered(reason="budget", message=f"the time budget of {budget_s:g} s is spent")


def observe(state: State, observation: Observation) -> list[Effect]:
    """Show it to the scheduler, and do as that decides."""
    effects: list[Effect] = []
    decisions = state.policy.decide(state, observation)
    for decision in decisions:
        reporting = decision.trial_id == observation.trial_id
        match decision:
            case StopTrial():
                effects += stop(state, decision.trial_id, reporting=reporting)
            case PauseTrial():
                effects += _pause(state, decision.trial_id, reporting=reporting)
            case UnpauseTrial():
                state.unpause(decision.trial_id)
            case _:
                assert_never(decision)
    return [*effects, *fill(state)] if decisions else effects


def stop(state: State, trial_id: str, *, reporting: bool) -> list[Effect]:
    """`reporting`: the worker waits for an answer, which will carry the order."""
    status = state.trials[trial_id].status
    if status.is_final or status is Status.STOPPING:
        return []
    state.move(StopOrdered(trial_id=trial_id))
    state.paused.discard(trial_id)
    if status.has_worker:
        saves = bool(status is Status.RUNNING and state.spec.checkpoint.checkpoint_at_end)
        return [] if reporting else [_halt(state, trial_id, after_step=saves)]
    state.allotment.give_up(trial_id)
    return observe(state, TrialEnded(trial_id=trial_id))


def end(state: State, order: EndOrdered) -> list[Effect]:
    """Stop every worker; what is under way ends well, or is left to be resumed."""
    if state.ending is not None and order.reason not in _URGENT:
        return []
    state.ending = order
    if order.reason in RESUMABLE:
        return _interrupt(state, may_save=order.reason == "preempted")
    waiting = (*state.allotment.queue, *sorted(state.allotment.delayed))
    begun = [trial_id for trial_id in waiting if state.trials[trial_id].attempt]
    effects: list[Effect] = []
    for trial_id in (*state.allotment.holds, *begun, *sorted(state.paused)):
        effects += stop(state, trial_id, reporting=False)
    return effects


def _interrupt(state: State, *, may_save: bool) -> list[Effect]:
    """Take the workers from those that would go on; one that is stopping may still do so."""
    effects: list[Effect] = []
    for trial_id in state.allotment.holds:
        trial = state.trials[trial_id]
        if may_save and trial.status is Status.RUNNING:
            effects.append(Preempt(trial_id=trial_id, attempt=trial.attempt))
        elif trial.status in (Status.STARTING, Status.RUNNING):
            state.move(Interrupted(trial_id=trial_id))
            effects.append(_halt(state, trial_id))
    return effects


def _pause(state: State, trial_id: str, *, reporting: bool) -> list[Effect]:
    if state.trials[trial_id].status is not Status.RUNNING:
        return []
    state.move(PauseOrdered(trial_id=trial_id))
    state.paused.add(trial_id)
    return [] if reporting else [_halt(state, trial_id)]


def _halt(state: State, trial_id: str, *, after_step: bool = False) -> Halt:
    attempt = state.trials[trial_id].attempt
    return Halt(trial_id=trial_id, attempt=attempt, after_step=after_step)
