"""Handles a worker's reports: judges the row, keeps the checkpoint, drops older ones."""

from __future__ import annotations

from typing import Any

from holdfast.scheduler.effects import AskStopper, Commit, Discard, Effect, Reply, Verdict, Warn
from holdfast.scheduler.events import EndOrdered, Raised, SchedulerAnswered, StopperAnswered
from holdfast.scheduler.failing import on_answered, on_raised
from holdfast.scheduler.launching import can_grow
from holdfast.scheduler.placement import WaitsFor
from holdfast.scheduler.policy import TrialReported, UserAnswered
from holdfast.scheduler.state import State, row_of, score_of
from holdfast.scheduler.stopping import (
    end,
    fill_or_finish,
    observe,
    release_origin,
    stop,
    supersede,
)
from holdfast.schema import maker
from holdfast.trial.best import value_of
from holdfast.trial.config import FOR_RAY
from holdfast.trial.events import (
    Adopted,
    Committed,
    PauseOrdered,
    Reported,
    Saved,
    Unpaused,
)
from holdfast.trial.lifecycle import forgiven
from holdfast.trial.metrics import has_metric, lookup, overruled, reaches
from holdfast.trial.trial import Status, Stop, StopReason, Trial, evolve, evolve_record

_VERDICTS = {
    Status.RUNNING: Verdict.CONTINUE,
    Status.STOPPING: Verdict.STOP,
    Status.PAUSED: Verdict.PAUSE,
    Status.PENDING: Verdict.STOP,
    Status.ERROR: Verdict.STOP,
    Status.TERMINATED: Verdict.STOP,
}
# Both are created for every report.
_trial_reported, _answer = maker(TrialReported), maker(Reply)


def on_report(state: State, event: Reported) -> list[Effect]:
    if not state.is_current(event.trial_id, event.attempt):
        return []
    before = state.trials[event.trial_id]
    trial = _with_goal(state, before, state.move(event))
    effects: list[Effect] = []
    if event.checkpoint is not None:
        effects += _keep_newest(state, trial)
    if trial.iteration == 1:
        effects += _warnings_of_first(state, trial)
    expected = state.expected
    if not expected.is_met and (text := expected.fault_in(row_of(trial), event.metrics)):
        effects += _absent(state, text)
    if state.spec.has_stopper:
        effects.append(
            AskStopper(trial_id=event.trial_id, attempt=event.attempt, iteration=event.iteration)
        )
        return effects
    return effects + _judge(state, event.trial_id)


def _with_goal(state: State, before: Trial, trial: Trial) -> Trial:
    """Keep the last value of the goal for the end: a last report often has only a test score."""
    metric = state.spec.metric
    if metric is None or (trial.earlier is None and has_metric(trial.row or {}, metric)):
        return trial
    value = None if has_metric(row_of(trial), metric) else value_of(before, metric)
    earlier = None if value is None else {metric: value}
    trial = state.trials[trial.trial_id] = evolve(trial, earlier=earlier)
    return trial


def _absent(state: State, text: str) -> list[Effect]:
    expected = state.expected
    if not (state.spec.options.get(FOR_RAY) and expected.lacks_only_stoppers):
        return end(state, EndOrdered(reason="abort", message=text))
    warning = f"{' and '.join(expected.unseen)}: no report has this value, so it stops nothing"
    expected.forgive()
    return [Warn(text=warning)]


def on_saved(state: State, event: Saved) -> list[Effect]:
    trial = state.trials[event.trial_id]
    if _is_too_late(trial, event):
        return [Discard(trial_id=trial.trial_id, checkpoint=event.checkpoint)]
    alive = trial.status.has_worker or trial.status is Status.PAUSED
    # An event of an earlier attempt, or the trial has become a clone with another checkpoint.
    if trial.attempt != event.attempt or not alive or trial.origin is not None:
        return []
    trial, was = state.move(event), trial
    if was.status is Status.STARTING or event.checkpoint.iteration != was.iteration:
        # A restore found this checkpoint. Its row is lost, or is not the newest.
        return [Commit(trial_id=trial.trial_id, checkpoint=event.checkpoint)]
    return _keep_newest(state, trial)


def _is_too_late(trial: Trial, event: Saved) -> bool:
    """Whether a trial was ended while its last attempt saved itself for a pause: no record has
    this checkpoint, or ever will."""
    is_new = event.checkpoint.index >= trial.next_checkpoint
    return trial.status.is_final and trial.attempt == event.attempt and is_new


def on_committed(state: State, event: Committed) -> list[Effect]:
    state.move(event)
    effects = supersede(state, event.trial_id)
    if WaitsFor.CHECKPOINT in state.placement.waits.values():
        effects += on_answered(state, event.trial_id)
    return effects


def on_adopted(state: State, event: Adopted) -> list[Effect]:
    trial = state.trials[event.trial_id]
    if not state.is_current(event.trial_id, event.attempt) or trial.origin is None:
        return []
    state.move(event)
    kept = Commit(trial_id=event.trial_id, checkpoint=event.checkpoint)
    return [kept, *release_origin(state, trial)]


def on_scheduler(state: State, event: SchedulerAnswered) -> list[Effect]:
    trial_id = event.trial_id
    if state.questions.pop(trial_id, None) is None:
        return []
    effects = observe(state, UserAnswered(trial_id=trial_id, answer=event.answer))
    trial = state.trials[trial_id]
    state.enqueue(trial_id)
    if trial_id in state.questions and trial.status is Status.RUNNING:
        return effects  # another question follows: the report waits for its answer, too
    if (
        state.deferred_replies.pop(trial_id, None) == trial.attempt
        and trial_id in state.placement.holds
    ):
        _pause_if_held(state, trial_id)
        effects.append(_reply(state, trial_id))
    return [*effects, *fill_or_finish(state)]


def on_stopper(state: State, event: StopperAnswered) -> list[Effect]:
    if not state.is_current(event.trial_id, event.attempt):
        return []
    if event.failure is not None:
        raised = Raised(trial_id=event.trial_id, attempt=event.attempt, failure=event.failure)
        reply = Reply(trial_id=event.trial_id, attempt=event.attempt, verdict=Verdict.STOP)
        return [*on_raised(state, raised), reply]
    effects: list[Effect] = []
    if event.stop_all:
        message = "the stopper ended the experiment"
        effects += end(state, EndOrdered(reason="stopper", message=message))
    return effects + _judge(state, event.trial_id, stops=event.stop or event.stop_all)


def _warnings_of_first(state: State, trial: Trial) -> list[Effect]:
    """All trials report alike, so only the first report of the first trial is checked."""
    if trial.spec.index or trial.attempt > 1:
        return []
    row = row_of(trial)
    texts = (overruled(row, trial.row or {}), _nan_at_once(state.spec.metric, row))
    return [Warn(text=f"{trial.spec.name}: {text}") for text in texts if text]


def _nan_at_once(metric: str | None, row: dict[str, Any]) -> str:
    value = None if metric is None else lookup(row, metric)
    if not isinstance(value, float) or value == value:
        return ""
    return (
        f"{metric} is NaN in the first report. NaN is never the best, and if all trials report "
        "it, no trial is the best"
    )


def _keep_newest(state: State, trial: Trial) -> list[Effect]:
    """Score the new checkpoint by its row."""
    newest, row = trial.checkpoints[-1], row_of(trial)
    if attribute := state.spec.checkpoint.checkpoint_score_attribute:
        newest = evolve_record(newest, score=score_of(row, attribute))
        trial = evolve(trial, checkpoints=(*trial.checkpoints[:-1], newest))
    state.trials[trial.trial_id] = (
        forgiven(trial) if state.spec.failure.reset_on_progress else trial
    )
    kept = Commit(trial_id=trial.trial_id, checkpoint=newest)
    text = state.expected.doubt_of_score(row, trial.row or {})
    return [kept, Warn(text=text)] if text else [kept]


def _judge(state: State, trial_id: str, *, stops: bool = False) -> list[Effect]:
    """Decide on a report: the user's bounds first, then the scheduler. Each makes the row that it
    needs: most reports need none."""
    trial = state.trials[trial_id]
    effects: list[Effect] = []
    if not trial.status.has_worker:
        return effects
    if why := _stop_of(state, trial, stops=stops):
        effects += stop(state, trial_id, why, is_reporting=True)
    elif trial.status is Status.RUNNING:
        if state.has_policy:
            effects += observe(state, _trial_reported(trial_id=trial_id, row=row_of(trial)))
        if trial_id in state.questions and state.trials[trial_id].status is Status.RUNNING:
            state.deferred_replies[trial_id] = trial.attempt
            return effects
        if trial.is_held:
            _pause_if_held(state, trial_id)
        if trial.bundles:
            effects += _grow(state, trial_id)
    effects.append(_reply(state, trial_id))
    return effects


def _stop_of(state: State, trial: Trial, *, stops: bool) -> Stop | None:
    """Why the user's bounds, or the stopper (`stops`), end the trial, or the length of a fresh
    run; None if nothing does."""
    bounds = state.spec.stop
    if bounds and (key := reaches(row_of(trial), bounds)):
        return Stop(reason=StopReason.FINISHED, why=f"{key} reached {bounds[key]}")
    if trial.row and trial.row.get("done") is True:
        return Stop(reason=StopReason.FINISHED, why="it reported done")
    if stops:
        return Stop(reason=StopReason.STOPPER)
    if trial.has_trained_its_length:
        why = "it trained as long as the longest in the search"
        return Stop(reason=StopReason.FINISHED, why=why)
    return None


def _reply(state: State, trial_id: str) -> Reply:
    trial = state.trials[trial_id]
    saving = state.saving.pop(trial_id, None) == trial.attempt
    verdict = _VERDICTS[trial.status]
    if verdict is Verdict.PAUSE and trial.origin is not None:
        verdict = Verdict.STOP  # it resumes from another trial's checkpoint
    elif verdict is Verdict.CONTINUE and saving and state.spec.saves_when_told:
        verdict = Verdict.SAVE
    return _answer(trial_id=trial_id, attempt=trial.attempt, verdict=verdict)


def _pause_if_held(state: State, trial_id: str) -> None:
    """Pause a trial that a person pauses, if it can continue from this report. As soon as its
    worker has ended, it is PENDING and held."""
    trial = state.trials[trial_id]
    can_continue = trial.has_saved or state.spec.saves_when_told
    if trial.is_held and trial.status is Status.RUNNING and can_continue:
        who, _ = state.paused_by(trial_id) or ("a person", 0.0)
        state.move(PauseOrdered(trial_id=trial_id, why=f"paused by {who}"))
        state.resume_when_free.add(trial_id)


def _grow(state: State, trial_id: str) -> list[Effect]:
    """Restart the trial from this report's checkpoint with more workers, if they are free."""
    trial = state.trials[trial_id]
    if trial.status is not Status.RUNNING or not trial.has_saved or not can_grow(state, trial):
        return []
    why = "it continues with more workers"
    state.move(PauseOrdered(trial_id=trial_id, why=why))
    state.move(Unpaused(trial_id=trial_id))
    return [Warn(text=f"{trial.spec.name} restarts from its newest checkpoint with more workers")]
