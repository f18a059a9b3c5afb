"""Handles what a person orders while the experiment runs, and says which orders apply.

A person's pause is a mark of the trial (`Trial.is_held`), which outlives attempts and restores. A
running trial gives up its worker at a report from which it can continue; then it is PENDING and is
not queued. To a scheduler it is a trial that waits for resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from holdfast.names import shown
from holdfast.scheduler.effects import Effect, Halt, Warn
from holdfast.scheduler.events import (
    ConfigAdded,
    ConfigRefused,
    EndOrdered,
    LimitChanged,
    NoteWritten,
    Order,
    PauseRequested,
    ResumeRequested,
    SamplesAdded,
    TrialStopOrdered,
)
from holdfast.scheduler.launching import impossible
from holdfast.scheduler.placement import WaitsFor
from holdfast.scheduler.state import State
from holdfast.scheduler.stopping import end, fill_or_finish, stop
from holdfast.trial.config import PLANNED, SAID
from holdfast.trial.events import Held, HoldEnded, Interrupted, Noted
from holdfast.trial.lifecycle import HOLDABLE
from holdfast.trial.trial import Status, Stop, StopReason, Trial

MOST_NOTE_CHARS = 10_000


def on_order(state: State, order: Order) -> list[Effect]:
    """Perform an order. One that does not apply (see `refusal`) changes nothing."""
    if refusal(state, order):
        return []
    state.note(order, state.now)
    match order:
        case TrialStopOrdered(trial_id=trial_id, by=by):
            why = Stop(reason=StopReason.USER, by=by, why=f"stopped by {by}")
            effects = stop(state, trial_id, why, is_reporting=False)
            return [*effects, *fill_or_finish(state)]
        case PauseRequested():
            return [*_pause(state, order), *fill_or_finish(state)]
        case ResumeRequested(trial_id=trial_id):
            return _resume(state, trial_id)
        case LimitChanged(max_concurrent=most):
            _remember(state, "max_concurrent", state.spec.max_concurrent)
            state.spec = replace(state.spec, max_concurrent=most)
            return fill_or_finish(state)
        case SamplesAdded(count=count):
            _remember(state, "num_samples", state.spec.num_samples)
            options = {**state.spec.options, PLANNED: order.total}
            samples = state.spec.num_samples + count
            state.spec = replace(state.spec, num_samples=samples, options=options)
            state.expect_more()
            return fill_or_finish(state)
        case ConfigAdded():
            state.configs = (*state.configs, order)
            return fill_or_finish(state)
        case NoteWritten(trial_id=trial_id):
            state.move(Noted(trial_id=trial_id, note=order.text))
            return []
        case _:
            assert_never(order)


def on_refused(state: State, event: ConfigRefused) -> list[Effect]:
    """The oldest added config made no trial. After the end, a restore tries it again."""
    if not state.configs or state.finished:
        return []
    config = f"{dict(state.configs[0].config)!r:.200}"
    state.configs, state.asking_config = state.configs[1:], False
    return [
        Warn(text=f"The added config {config} makes no trial: {event.why}"),
        *fill_or_finish(state),
    ]


def _pause(state: State, order: PauseRequested) -> list[Effect]:
    trial_id = order.trial_id
    trial, placement = state.trials[trial_id], state.placement
    if not trial.is_held:
        state.move(Held(trial_id=trial_id))
    if trial_id in placement.queue or placement.waits.get(trial_id) is WaitsFor.CHECKPOINT:
        state.enqueue(trial_id)
    elif order.now and trial.status.has_worker:
        state.move(Interrupted(trial_id=trial_id, why=f"paused by {order.by}", is_pause=True))
        return [Halt(trial_id=trial_id, attempt=trial.attempt)]
    return []


def _resume(state: State, trial_id: str) -> list[Effect]:
    trial = state.move(HoldEnded(trial_id=trial_id))
    effects: list[Effect] = []
    if state.placement.waits.get(trial_id) is WaitsFor.PERSON:
        state.placement.leave_queue(trial_id)
        state.enqueue(trial_id)
        if text := impossible(state, [trial]):  # nodes have left since
            effects += end(state, EndOrdered(reason="abort", message=text))
    return [*effects, *fill_or_finish(state)]


def _remember(state: State, name: str, value: Any) -> None:
    """Keep what the script has said of a setting that a person changes."""
    said: Mapping[str, Any] = state.spec.options.get(SAID, {})
    if name not in said:
        options = {**state.spec.options, SAID: {**said, name: value}}
        state.spec = replace(state.spec, options=options)


def refusal(state: State, order: Order) -> str:
    """Why the order does not apply now, as a sentence without a full stop; "" if it does."""
    if isinstance(order, (LimitChanged, SamplesAdded, ConfigAdded)):
        return _refusal_of_all(state, order)
    trial = state.trials.get(order.trial_id)
    if trial is None:
        return f"there is no trial {shown(order.trial_id)}"
    match order:
        case NoteWritten():
            is_long = len(order.text) > MOST_NOTE_CHARS
            return f"a note has at most {MOST_NOTE_CHARS:,} characters" if is_long else ""
        case TrialStopOrdered():
            return _is_over(trial)
        case PauseRequested():
            if trial.is_held and not (order.now and trial.is_pausing):
                return f"{_named(trial)} is paused already"
            return _is_over(trial) or ("the run has finished" if state.finished else "")
        case ResumeRequested():
            return _is_over(trial) or _not_held(state, trial)
        case _:
            assert_never(order)


def _refusal_of_all(state: State, order: LimitChanged | SamplesAdded | ConfigAdded) -> str:
    if state.finished:
        return "the run has finished"
    if state.spec.options.get("trainer") and not isinstance(order, LimitChanged):
        return "a trainer's experiment has one trial"
    match order:
        case LimitChanged():
            return "max_concurrent_trials must be at least 1" if order.max_concurrent == 0 else ""
        case SamplesAdded():
            if state.spec.num_samples < 0:
                return "the search has no limit: num_samples is -1"
            return "" if order.count else "the number of trials to add must be at least 1"
        case ConfigAdded():
            return ""
        case _:
            assert_never(order)


def _is_over(trial: Trial) -> str:
    if trial.status.is_final:
        return f"{_named(trial)} has ended: {trial.status}"
    return f"{_named(trial)} is stopping already" if trial.status not in HOLDABLE else ""


def _not_held(state: State, trial: Trial) -> str:
    if trial.is_held:
        return ""
    if trial.status is Status.PAUSED:
        name = state.spec.scheduler or "the scheduler"
        return f"{_named(trial)} was paused by {name}, which resumes it"
    return f"{_named(trial)} is not paused: {trial.status}"


def _named(trial: Trial) -> str:
    return f"trial {trial.trial_id}"
