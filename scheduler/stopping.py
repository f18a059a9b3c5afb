"""Ending or pausing a trial, carrying out the scheduler's orders, and ending the experiment."""

from __future__ import annotations

from typing import assert_never, get_args

from holdfast.scheduler.effects import AskScheduler, Discard, Effect, Finish, Halt, Preempt, Warn
from holdfast.scheduler.events import EndOrdered, ResumableReason
from holdfast.scheduler.launching import fill, fits_no_trial, impossible, release_idle
from holdfast.scheduler.placement import WaitsFor
from holdfast.scheduler.policy import (
    Abort,
    AskUser,
    ChangeTrial,
    CloneTrial,
    Decision,
    NoteRung,
    Observation,
    PauseTrial,
    SaveTrial,
    Stalled,
    StopTrial,
    Tell,
    TrialEnded,
    TrialReported,
    UnpauseTrial,
    UserAnswered,
)
from holdfast.scheduler.state import State, superseded
from holdfast.schema import maker
from holdfast.trial.events import (
    Changed,
    Cloned,
    Dropped,
    Interrupted,
    PauseOrdered,
    RungReached,
    StopOrdered,
)
from holdfast.trial.trial import Origin, RungVisit, Status, Stop, StopReason, Trial

RESUMABLE = get_args(ResumableReason)
_CHANGEABLE = (Status.PENDING, Status.RUNNING, Status.PAUSED)
_OF_A_REPORT = (TrialReported, UserAnswered)
# These take effect even if the run is already ending.
_URGENT = ("interrupt", "preempted", "abort")
# Of a scheduler's order, by whether it says that the trial had more to do.
_REASONS = {True: StopReason.PRUNED, False: StopReason.FINISHED, None: StopReason.STOPPED}
# What user code is asked to save for.
_PREEMPTED = "the script got a SIGTERM"
# These are created for most reports of some schedulers.
_visit, _rung_reached = maker(RungVisit), maker(RungReached)
_stop, _stop_ordered = maker(Stop), maker(StopOrdered)


def budget_spent(budget_s: float) -> EndOrdered:
    """The order that ends a run whose time budget is used up."""
    return EndOrdered(reason="budget", message=f"the time budget of {budget_s:g} s is used up")


def observe(state: State, observation: Observation) -> list[Effect]:
    """Show the scheduler an observation and perform its decisions. It sees no fresh run: one that
    it stopped early would tell nothing about its config."""
    trial = state.trials.get(observation.trial_id)
    is_fresh = trial is not None and trial.spec.confirms
    decisions = state.consult(observation) if state.has_policy and not is_fresh else ()
    if not decisions:
        return []
    reporting_id = observation.trial_id if isinstance(observation, _OF_A_REPORT) else ""
    effects: list[Effect] = []
    for decision in decisions:
        effects += _perform(state, decision, reporting_id)
    return [*effects, *fill(state)]


def _perform(state: State, decision: Decision, reporting_id: str) -> list[Effect]:
    """Perform a decision. `reporting_id` is the trial whose worker waits for an answer."""
    match decision:
        case StopTrial(trial_id=trial_id):
            why = _by_scheduler(state, decision)
            return stop(state, trial_id, why, is_reporting=trial_id == reporting_id)
        case NoteRung():
            return _note_rung(state, decision)
        case PauseTrial(trial_id=trial_id):
            return _pause_or_abort(
                state,
                trial_id,
                is_reporting=trial_id == reporting_id,
                may_restart=decision.may_restart,
            )
        case UnpauseTrial():
            state.unpause(decision.trial_id)
            return []
        case SaveTrial():
            state.saving[decision.trial_id] = state.trials[decision.trial_id].attempt
            return []
        case CloneTrial():
            return _clone(state, decision, is_reporting=decision.trial_id == reporting_id)
        case ChangeTrial():
            return _change(state, decision, is_reporting=decision.trial_id == reporting_id)
        case AskUser():
            state.questions[decision.trial_id] = decision.question
            state.placement.leave_queue(decision.trial_id)
            if state.finished:  # the search answered after the end: a restore will ask
                return []
            return [AskScheduler(trial_id=decision.trial_id, question=decision.question)]
        case Tell():
            return [Warn(text=decision.text)]
        case Abort():
            return end(state, EndOrdered(reason="abort", message=decision.message))
        case _:
            assert_never(decision)


def _by_scheduler(state: State, order: StopTrial) -> Stop:
    by = order.by or state.spec.scheduler
    return _stop(reason=_REASONS[order.is_early], by=by, why=order.why)


def _note_rung(state: State, note: NoteRung) -> list[Effect]:
    visit = _visit(
        milestone=note.milestone,
        promoted=note.promoted,
        value=note.value,
        cutoff=note.cutoff,
        bracket=note.bracket,
        at=state.now,
    )
    state.move(_rung_reached(trial_id=note.trial_id, visit=visit))
    return []


def stop(state: State, trial_id: str, why: Stop, *, is_reporting: bool) -> list[Effect]:
    """Stop a trial. `is_reporting`: its worker waits for an answer, which will carry the order."""
    trial = state.trials[trial_id]
    status = trial.status
    if status.is_final or status is Status.STOPPING:
        return []
    state.move(_stop_ordered(trial_id=trial_id, stop=why))
    effects = release_origin(state, trial)
    if status.has_worker:
        saves = bool(status is Status.RUNNING and state.spec.checkpoint.checkpoint_at_end)
        return effects if is_reporting else [_halt(state, trial_id, after_step=saves), *effects]
    state.placement.queue.pop(trial_id, None)
    state.placement.waits.pop(trial_id, None)
    return effects + observe(state, TrialEnded(trial_id=trial_id))


def end(state: State, order: EndOrdered) -> list[Effect]:
    """End the run. `order.reason` decides whether its trials finish or can be resumed."""
    if state.ending is not None and order.reason not in _URGENT:
        return []
    state.ending = order
    if order.reason in RESUMABLE:
        return _interrupt(state, may_save=order.reason == "preempted")
    waiting = (*state.placement.queue, *state.placement.waiting_for(*WaitsFor))
    begun = [trial_id for trial_id in waiting if state.trials[trial_id].attempt]
    why = Stop(reason=StopReason(order.reason), why=order.message)
    effects: list[Effect] = []
    for trial_id in (*state.placement.holds, *begun, *state.paused):
        effects += stop(state, trial_id, why, is_reporting=False)
    return effects


def _interrupt(state: State, *, may_save: bool) -> list[Effect]:
    """Take the workers from running trials. A trial that is already stopping may finish."""
    effects: list[Effect] = []
    for trial_id in state.placement.holds:
        trial = state.trials[trial_id]
        if may_save and trial.status is Status.RUNNING:
            effects.append(Preempt(trial_id=trial_id, attempt=trial.attempt, why=_PREEMPTED))
        elif trial.status in (Status.STARTING, Status.RUNNING):
            state.move(Interrupted(trial_id=trial_id, why=state.why_interrupted()))
            effects.append(_halt(state, trial_id))
    return effects


def _pause_or_abort(
    state: State, trial_id: str, *, is_reporting: bool, may_restart: bool = False
) -> list[Effect]:
    """Pause a running trial. If it saves no checkpoints to resume from, this ends the run, unless
    the trial may restart from scratch."""
    trial = state.trials[trial_id]
    if trial.status is not Status.RUNNING:
        return []
    effects: list[Effect] = []
    if trial.iteration and not trial.checkpoints and not state.spec.saves_when_told:
        if not may_restart:
            return end(state, EndOrdered(reason="abort", message=_saves_nothing(state, trial)))
        effects += _warn_of_restarts(state, trial)
    return [*effects, *_order_pause(state, trial_id, is_reporting=is_reporting)]


def _warn_of_restarts(state: State, trial: Trial) -> list[Effect]:
    """A warning, once in a run, that paused trials lose what they have trained."""
    if state.has_warned_of_restarts:
        return []
    state.has_warned_of_restarts = True
    return [
        Warn(
            text=f"{_reported_none(state, trial)}: when it resumes, it starts from scratch, "
            "and its iterations run again. Pass report() a checkpoint"
        )
    ]


def _order_pause(
    state: State, trial_id: str, why: str = "the scheduler paused it", *, is_reporting: bool
) -> list[Effect]:
    """Pause a running trial. If it is reporting, the answer carries the order."""
    state.move(PauseOrdered(trial_id=trial_id, why=why))
    return [] if is_reporting else [_halt(state, trial_id)]


def _clone(state: State, order: CloneTrial, *, is_reporting: bool) -> list[Effect]:
    trial_id, source = order.trial_id, state.trials[order.source]
    was = state.trials[trial_id]
    status = was.status
    if status not in _CHANGEABLE or order.source == trial_id:
        return []
    if (checkpoint := source.newest_checkpoint) is None:
        message = _saves_nothing(state, source)
        return end(state, EndOrdered(reason="abort", message=message))
    effects: list[Effect] = []
    if status is Status.RUNNING:
        why = f"it continues from a checkpoint of trial {order.source}"
        effects += _order_pause(state, trial_id, why, is_reporting=is_reporting)
        state.resume_when_free.add(trial_id)
    origin = Origin(trial_id=order.source, checkpoint=checkpoint)
    state.move(Cloned(trial_id=trial_id, origin=origin, config=order.config, at=state.now))
    state.ask_again([trial_id])
    effects += release_origin(state, was)
    return effects


def _change(state: State, order: ChangeTrial, *, is_reporting: bool) -> list[Effect]:
    trial_id = order.trial_id
    status = state.trials[trial_id].status
    if status not in _CHANGEABLE:
        return []
    effects: list[Effect] = []
    if status is Status.RUNNING:
        effects += _pause_or_abort(state, trial_id, is_reporting=is_reporting)
        if state.trials[trial_id].status is not Status.PAUSED:  # no checkpoint: the run ends
            return effects
        state.resume_when_free.add(trial_id)
    changed = Changed(trial_id=trial_id, config=order.config, resources=order.resources)
    if text := impossible(state, [state.move(changed)]):
        effects += end(state, EndOrdered(reason="abort", message=text))
    return effects


def _saves_nothing(state: State, trial: Trial) -> str:
    return (
        f"{_reported_none(state, trial)}: pass report() a checkpoint (a class trainable: define "
        "save_checkpoint and load_checkpoint), or choose a scheduler that only stops trials"
    )


def _reported_none(state: State, trial: Trial) -> str:
    name = state.spec.scheduler or "the scheduler"
    return (
        f"{name} resumes trials from checkpoints, but {trial.spec.name} has reported none in "
        f"{trial.iteration} iterations"
    )


def _halt(state: State, trial_id: str, *, after_step: bool = False) -> Halt:
    attempt = state.trials[trial_id].attempt
    return Halt(trial_id=trial_id, attempt=attempt, after_step=after_step)


def supersede(state: State, trial_id: str) -> list[Effect]:
    """Drop the trial's superseded checkpoints, except those that a clone still needs."""
    checkpoints, needed = state.trials[trial_id].checkpoints, state.needed_of(trial_id)
    effects: list[Effect] = []
    for checkpoint in superseded(checkpoints, state.spec.checkpoint, needed=needed):
        state.move(Dropped(trial_id=trial_id, index=checkpoint.index))
        effects.append(Discard(trial_id=trial_id, checkpoint=checkpoint))
    return effects


def release_origin(state: State, was: Trial) -> list[Effect]:
    """Drop checkpoints that were kept only for a clone, `was`, which waited for its copy."""
    return [] if was.origin is None else supersede(state, was.origin.trial_id)


def fill_or_finish(state: State) -> list[Effect]:
    """Fill free places; finish the experiment when nothing is left to do."""
    return [*fill(state), *_conclude(state)]


def resume_stalled(state: State) -> list[Effect]:
    """If all unfinished trials are paused, resume those that the scheduler chooses."""
    placement = state.placement
    if placement.has_trials or state.questions:
        return []
    effects = observe(state, Stalled())
    if not (state.ending or placement.has_trials or state.questions):
        for trial_id in state.paused:
            state.unpause(trial_id)
    return [*effects, *fill(state)]


def _conclude(state: State) -> list[Effect]:
    placement = state.placement
    if state.finished or placement.holds:
        return []
    if state.asking and not state.ending:
        return resume_stalled(state) if state.search_waits and state.paused else []
    if not state.ending:
        is_busy = placement.has_trials or state.questions or state.configs or state.asking_config
        if is_busy or not (state.confirming or state.search_ended or fits_no_trial(state)):
            return []
        if state.paused:
            return [*resume_stalled(state), *_conclude(state)]
        if state.held:  # the run waits for a person
            return release_idle(state)
        if state.spec.confirm and not state.confirming:
            state.confirming = True
            if effects := fill(state):
                return effects
    if placement.idle:
        return release_idle(state)
    state.finished = True
    if (order := state.ending) is not None:
        return [Finish(reason=order.reason, message=order.message, remedy=order.remedy)]
    return [Finish(reason="done")]
