"""Why a trial does not run any more: a word for tables, and a sentence. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.trial import Status, Stop, StopReason, Trial

_STOPPER = "stopper"
_SHORT = {
    "MultiObjectiveASHAScheduler": "MO-ASHA",
    "HyperBandForBOHB": "BOHB",
    "MedianStoppingRule": "median",
    "PopulationBasedTraining": "PBT",
}


def short_name(scheduler: str) -> str:
    """`ASHA`, from the name of a scheduler's class."""
    return _SHORT.get(scheduler) or scheduler.removesuffix("Scheduler") or scheduler


def stop_reason(trial: Trial, *, is_live: bool) -> StopReason | None:
    """Why the trial has stopped; None for one that runs or waits.

    Unless the run `is_live`, a trial that has begun, or that a person has paused, and that has not
    ended, is interrupted.
    """
    if trial.status is Status.ERROR:
        return StopReason.FAILED
    if trial.status is Status.TERMINATED:
        return StopReason.FINISHED if trial.stop is None else trial.stop.reason
    if is_live or not (trial.attempt or trial.waits_for_person):
        return None
    return StopReason.INTERRUPTED if trial.stop is None else trial.stop.reason


def stop_sentence(trial: Trial, spec: ExperimentSpec, *, is_live: bool) -> str:
    """`ASHA stopped it at iteration 9: loss=0.3 at ...`; "" for a trial that runs or waits."""
    reason, stop = stop_reason(trial, is_live=is_live), trial.stop
    if reason is None:
        return ""
    at = f"at iteration {trial.iteration}"
    why = f": {stop.why}" if stop is not None and stop.why else ""
    match reason:
        case StopReason.FINISHED:
            return f"it finished {at}{why}"
        case StopReason.PRUNED | StopReason.STOPPED:
            who = "the scheduler" if stop is None else _who(stop)
            return f"{who} stopped it {at}{why}"
        case StopReason.STOPPER:
            return f"{spec.options.get(_STOPPER) or 'the stopper'} stopped it {at}{why}"
        case StopReason.BUDGET:
            return f"it was stopped {at}{why}"
        case StopReason.USER:
            by = stop.by if stop is not None else ""
            return f"{by or 'a person'} stopped it {at}"
        case StopReason.INTERRUPTED if trial.waits_for_person:
            return f"it is paused {at}, and waits for `holdfast resume` with its name"
        case StopReason.INTERRUPTED:
            saved = trial.newest_checkpoint
            then = f"resumes from iteration {saved.iteration}" if saved else "starts over"
            return f"it was interrupted {at}, and {then} with a restore"
        case StopReason.FAILED:
            return f"it failed {at}" + (f": {trial.error.headline}" if trial.error else "")


def early_reason(trial: Trial) -> StopReason | None:
    """The reason of a trial that was stopped before it had finished; None for any other."""
    reason = stop_reason(trial, is_live=True)
    return reason if reason is not None and reason.is_early else None


def stop_text(stop: Stop | None) -> str:
    """`finished`, `pruned by ASHA` or `stopped by budget`."""
    if stop is None or not stop.reason.is_early:
        return "finished"
    verb = "pruned" if stop.reason is StopReason.PRUNED else "stopped"
    return f"{verb} by {_who(stop)}"


def _who(stop: Stop) -> str:
    if stop.reason in (StopReason.PRUNED, StopReason.STOPPED):
        return short_name(stop.by) or "the scheduler"
    if stop.reason is StopReason.USER:
        return stop.by.partition(" (")[0] or "a person"
    return stop.reason.value


def count_reasons(trials: Iterable[Trial], *, is_live: bool) -> dict[StopReason, int]:
    """How many trials have stopped for each reason, in the order of `StopReason`."""
    found = Counter(stop_reason(trial, is_live=is_live) for trial in trials)
    return {reason: found[reason] for reason in StopReason if found[reason]}
