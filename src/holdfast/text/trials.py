"""The words for trials: their states, why they ended, where they continue. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from holdfast.text.values import format_value
from holdfast.trial.trial import CheckpointRecord, Status, Stop, StopReason, Trial

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
    """The reason why the trial has stopped; None for one that runs or waits.

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


def stop_sentence(trial: Trial, options: Mapping[str, Any], *, is_live: bool) -> str:
    """`ASHA stopped it at iteration 9: loss=0.3 at ...`; "" for a trial that runs or waits.

    `options` are those of the experiment's spec.
    """
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
            return f"{options.get(_STOPPER) or 'the stopper'} stopped it {at}{why}"
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
    """The number of trials that have stopped for each reason, in the order of `StopReason`."""
    found = Counter(stop_reason(trial, is_live=is_live) for trial in trials)
    return {reason: found[reason] for reason in StopReason if found[reason]}


# The order in which states are listed everywhere.
_WORDS = {
    Status.TERMINATED: "finished",
    Status.ERROR: "failed",
    Status.RUNNING: "running",
    Status.STARTING: "starting",
    Status.STOPPING: "stopping",
    Status.PAUSED: "paused",
    Status.PENDING: "queued",
}


def states_text(
    counts: Mapping[Status, int],
    not_created: int = 0,
    *,
    ended: bool = False,
    is_live: bool = True,
    reasons: Mapping[StopReason, int] | Mapping[str, int] = MappingProxyType({}),
    interrupted: int = 0,
) -> str:
    """`8 finished, 2 pruned, 1 failed, 2 running, 3 queued, 10 not created yet`.

    `reasons` counts the trials that have ended by reason. Unless the run `is_live`, the trials
    that had a worker are `interrupted`, and so are those that had begun and wait again:
    `interrupted` counts all that had begun and have not ended.
    """
    words, known = Counter[str](), {str(reason): n for reason, n in reasons.items()}
    early = {reason.value: known.get(reason, 0) for reason in StopReason if reason.is_early}
    for status, word in _WORDS.items():
        words[word if is_live or not status.has_worker else "interrupted"] += counts.get(status, 0)
        if status is Status.TERMINATED:
            words[word] -= sum(early.values())
            words.update(early)
    if not is_live:
        again = interrupted - words["interrupted"] - words["paused"]
        words["interrupted"] += again
        words["queued"] -= again
    parts = [f"{count} {word}" for word, count in words.items() if count]
    later = "not created" if ended else "not created yet"
    return ", ".join([*parts, *[f"{not_created} {later}"] * bool(not_created)])


def state_word(status: Status, reason: str | None) -> str:
    """`queued`, `running`, `finished`, `pruned`: the word of a trial in tables and counts.

    `reason` is that of a trial that was stopped or interrupted."""
    return reason if reason and status is not Status.PAUSED else _WORDS[status]


def start_text(checkpoint: CheckpointRecord | None = None) -> str:
    """`checkpoint_000003 (iteration 4)`; `the start` without a checkpoint."""
    if checkpoint is None:
        return "the start"
    return f"{checkpoint.dirname} (iteration {checkpoint.iteration})"


def changes_text(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """`lr 0.1 → 0.02, net/width 16 → 32`."""
    return ", ".join(
        f"{name} {format_value(was)} → {format_value(now)}" for name, (was, now) in changes.items()
    )


def number(trial_id: str) -> str:
    """The number at the end of a trial's id, which tells the trials of a run apart."""
    return trial_id.rpartition("_")[2]


def unread_text(unread: int) -> str:
    """The number of lines that looked like reports, with advice; "" for 0."""
    return (
        f"{unread:,} line{'s' * (unread > 1)} looked like a report and could not be read. "
        "Where several processes print, lines mix: append reports to $HOLDFAST_REPORT_FILE"
    ) * bool(unread)
