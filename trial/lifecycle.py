"""The states of a trial: a table of (status, event), and `advance`, which applies it.

The machine drops events of older attempts before they reach the table. A pair that is not in the
table is impossible and raises InvalidTransition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.schema import evolver
from holdfast.trial.errors import InvalidTransition
from holdfast.trial.events import (
    Adopted,
    Changed,
    Cloned,
    Committed,
    ConstraintViolated,
    Dropped,
    Errored,
    Held,
    HoldEnded,
    Interrupted,
    Launched,
    Measured,
    Noted,
    PauseOrdered,
    Reopened,
    Reported,
    Retried,
    Returned,
    RungReached,
    Saved,
    Shrunk,
    Started,
    StopOrdered,
    TrialEvent,
    Unpaused,
    Unread,
)
from holdfast.trial.trial import (
    Attempt,
    Budget,
    CheckpointRecord,
    Place,
    Status,
    Stop,
    StopReason,
    Takeover,
    Trial,
    evolve,
)
from holdfast.trial.values import changed_tag, spread


def _launched(trial: Trial, event: Launched) -> Trial:
    newest = trial.origin.checkpoint if trial.origin else trial.newest_checkpoint
    iteration = newest.iteration if newest else 0
    time_s = newest.time_total_s if newest else 0.0
    return evolve(
        trial,
        status=Status.STARTING,
        attempt=trial.attempt + 1,
        iteration=iteration,
        resumed_from=iteration,
        time_total_s=time_s,
        time_at_start_s=time_s,
        # A row after the checkpoint is rolled back with its iteration. A clone keeps its own row
        # of that iteration as its newest: its function may have nothing left to do.
        row=trial.row if iteration == trial.iteration else None,
        error=None,
        place=Place(),
        bundles=event.bundles,
    )


def _started(trial: Trial, event: Started) -> Trial:
    place = Place(pid=event.pid, hostname=event.hostname, node_ip=event.node_ip, nodes=event.nodes)
    status = Status.STOPPING if trial.status is Status.STOPPING else Status.RUNNING
    return evolve(trial, status=status, place=place)


# These changes follow most reports, and `evolve` takes twice as long.
_ROW = ("iteration", "time_this_iter_s", "time_total_s", "row", "reported_at")
_next_row = evolver(Trial, *_ROW)
_next_row_and_checkpoint = evolver(Trial, *_ROW, "checkpoints", "next_checkpoint", "has_room")
_with_checkpoints = evolver(Trial, "checkpoints")
_with_rungs = evolver(Trial, "rungs")
_with_status = evolver(Trial, "status")
_with_end = evolver(Trial, "status", "stop", "is_held")
_with_times = evolver(Trial, "began_at", "ended_at")
_with_committed = evolver(CheckpointRecord, "committed")


def _reported(trial: Trial, event: Reported) -> Trial:
    checkpoint = event.checkpoint
    if checkpoint is None:
        return _next_row(
            trial,
            iteration=event.iteration,
            time_this_iter_s=event.time_this_iter_s,
            time_total_s=event.time_total_s,
            row=event.metrics,
            reported_at=event.timestamp,
        )
    return _next_row_and_checkpoint(
        trial,
        iteration=event.iteration,
        time_this_iter_s=event.time_this_iter_s,
        time_total_s=event.time_total_s,
        row=event.metrics,
        reported_at=event.timestamp,
        checkpoints=(*trial.checkpoints, checkpoint),
        next_checkpoint=checkpoint.index + 1,
        has_room=event.has_room,
    )


def _saved(trial: Trial, event: Saved | Adopted) -> Trial:
    return evolve(
        trial,
        checkpoints=(*trial.checkpoints, event.checkpoint),
        # A restore may find a checkpoint that an earlier record had dropped.
        next_checkpoint=max(trial.next_checkpoint, event.checkpoint.index + 1),
    )


def _found(trial: Trial, event: Saved) -> Trial:
    """A restore has found a complete checkpoint that no record names: the attempt starts from
    it."""
    found = event.checkpoint
    return evolve(
        _saved(trial, event),
        iteration=found.iteration,
        resumed_from=found.iteration,
        time_total_s=found.time_total_s,
        time_at_start_s=found.time_total_s,
        row=None,
    )


def _adopted(trial: Trial, event: Adopted) -> Trial:
    return evolve(_saved(trial, event), origin=None)


def _cloned(trial: Trial, event: Cloned) -> Trial:
    was, now = spread(trial.config), spread(event.config)
    takeover = Takeover(
        source=event.origin.trial_id,
        iteration=trial.iteration,
        source_iteration=event.origin.checkpoint.iteration,
        changes={name: now[name] for name in now if name not in was or was[name] != now[name]},
        at=event.at,
    )
    return evolve(
        trial,
        origin=event.origin,
        changed_config=event.config,
        takeovers=(*trial.takeovers, takeover),
    )


def _changed(trial: Trial, event: Changed) -> Trial:
    spec, config = trial.spec, trial.changed_config
    if event.config is not None and trial.attempt == 0:
        # The trial has not started: this is its first config, also if it starts over.
        tag = changed_tag(spec.tag, spec.index, spec.config, event.config)
        spec = replace(spec, config=event.config, tag=tag)
    elif event.config is not None:
        config = event.config
    if event.resources is not None:
        spec = replace(spec, resources=event.resources)
    return evolve(trial, changed_config=config, spec=spec)


def _stopped(status: Status) -> Callable[[Trial, StopOrdered], Trial]:
    return lambda trial, event: _with_end(trial, status=status, stop=event.stop, is_held=False)


def _returned(trial: Trial, event: Returned) -> Trial:
    stop = _PRUNED_ITSELF if event.pruned else _RETURNED
    return _with_end(trial, status=Status.TERMINATED, stop=stop, is_held=False)


def _measured(trial: Trial, event: Measured) -> Trial:
    others = tuple([one for one in trial.usages if one.attempt != event.usage.attempt])
    return evolve(trial, usages=(*others, event.usage))


def _constraint_violated(trial: Trial, _: ConstraintViolated) -> Trial:
    return evolve(trial, is_infeasible=True)


def _unread(trial: Trial, event: Unread) -> Trial:
    return evolve(trial, unread=trial.unread + event.lines)


def _hold(trial: Trial, _: Held) -> Trial:
    return evolve(trial, is_held=True)


def _release(trial: Trial, _: HoldEnded) -> Trial:
    return evolve(trial, is_held=False)


def _noted(trial: Trial, event: Noted) -> Trial:
    return evolve(trial, note=event.note)


def _to(status: Status) -> Callable[[Trial, Any], Trial]:
    return lambda trial, event: _with_status(trial, status=status)


def _retried(trial: Trial, event: Retried) -> Trial:
    # Do not try an unreadable origin again.
    origin = None if event.failure.kind == "checkpoint" else trial.origin
    failed = evolve(trial, status=Status.PENDING, error=event.failure, origin=origin)
    return failed if event.budget is None else _charged(failed, event.budget)


def _shrunk(trial: Trial, event: Shrunk) -> Trial:
    return evolve(
        trial,
        status=Status.PENDING,
        error=event.failure,
        shrunk_to=trial.bundles - 1,
        shrunk_until=event.until,
    )


def _errored(trial: Trial, event: Errored) -> Trial:
    failed = evolve(trial, status=Status.ERROR, error=event.failure, is_held=False)
    return _charged(failed, event.budget)


def _charged(trial: Trial, budget: Budget) -> Trial:
    return evolve(trial, **{budget.value: budget.spent(trial) + 1})


def forgiven(trial: Trial) -> Trial:
    """The trial with every budget full again."""
    return evolve(trial, **{budget.value: 0 for budget in Budget})


def _reopened(trial: Trial, event: Reopened) -> Trial:
    fresh = evolve(forgiven(trial), status=Status.PENDING, error=None, origin=None, stop=None)
    fresh = evolve(fresh, is_infeasible=False)
    if not event.from_scratch:
        return fresh
    return evolve(
        fresh,
        checkpoints=(),
        iteration=0,
        time_total_s=0.0,
        row=None,
        unread=0,
        changed_config=None,
        rungs=(),
        takeovers=(),
    )


def _rung_reached(trial: Trial, event: RungReached) -> Trial:
    new = event.visit
    others = [
        known
        for known in trial.rungs
        if (known.milestone, known.bracket) != (new.milestone, new.bracket)
    ]
    return _with_rungs(trial, rungs=(*others, new))


def _committed(trial: Trial, event: Committed) -> Trial:
    return _with_checkpoints(
        trial,
        checkpoints=tuple(
            [
                _with_committed(known, committed=True) if known.index == event.index else known
                for known in trial.checkpoints
            ]
        ),
    )


def _dropped(trial: Trial, event: Dropped) -> Trial:
    kept = tuple([known for known in trial.checkpoints if known.index != event.index])
    return _with_checkpoints(trial, checkpoints=kept)


_RETURNED = Stop(reason=StopReason.FINISHED, why="its function returned")
_PRUNED_ITSELF = Stop(reason=StopReason.PRUNED, by="TrialPruned", why="its function raised it")
_RUN, _STOP, _START = Status.RUNNING, Status.STOPPING, Status.STARTING
# In these a trial can be paused and resumed by a person.
HOLDABLE = (Status.PENDING, Status.STARTING, Status.RUNNING, Status.PAUSED)

TABLE: dict[tuple[Status, type], Callable[[Trial, Any], Trial]] = {
    (Status.PENDING, Launched): _launched,
    (_START, Started): _started,
    # The reused worker could not take the trial's config, so a new one replaced it.
    (_RUN, Started): _started,
    (_STOP, Started): _started,
    (_RUN, Reported): _reported,
    (_STOP, Reported): _reported,
    (_START, Saved): _found,
    (_RUN, Saved): _saved,
    (_STOP, Saved): _saved,
    (Status.PAUSED, Saved): _saved,
    (_START, Adopted): _adopted,
    (_START, StopOrdered): _stopped(_STOP),
    (_RUN, StopOrdered): _stopped(_STOP),
    (Status.PENDING, StopOrdered): _stopped(Status.TERMINATED),
    (Status.PAUSED, StopOrdered): _stopped(Status.TERMINATED),
    (_RUN, PauseOrdered): _to(Status.PAUSED),
    (Status.PAUSED, Unpaused): _to(Status.PENDING),
    **{(status, Cloned): _cloned for status in (Status.PENDING, Status.PAUSED)},
    **{(status, Changed): _changed for status in (Status.PENDING, Status.PAUSED)},
    (_RUN, Returned): _returned,
    (_STOP, Returned): _to(Status.TERMINATED),
    (_START, Retried): _retried,
    (_RUN, Retried): _retried,
    # Saving its checkpoint for the pause failed.
    (Status.PAUSED, Retried): _retried,
    (Status.PAUSED, Errored): _errored,
    (_START, Shrunk): _shrunk,
    (_RUN, Shrunk): _shrunk,
    (_START, Errored): _errored,
    (_RUN, Errored): _errored,
    (_START, Interrupted): _to(Status.PENDING),
    (_RUN, Interrupted): _to(Status.PENDING),
    # The trial was stopping anyway, so it has ended.
    (_STOP, Interrupted): _to(Status.TERMINATED),
    (Status.TERMINATED, Reopened): _reopened,
    (Status.ERROR, Reopened): _reopened,
    (Status.PENDING, Reopened): _reopened,
    **{(status, Held): _hold for status in HOLDABLE},
    **{(status, HoldEnded): _release for status in HOLDABLE},
    **{(status, Noted): _noted for status in Status},
    **{(status, RungReached): _rung_reached for status in Status},
    # An attempt's process ends after the attempt.
    **{(status, Measured): _measured for status in Status},
    **{(status, ConstraintViolated): _constraint_violated for status in Status},
    **{(status, Unread): _unread for status in Status},
    **{(status, Committed): _committed for status in Status},
    **{(status, Dropped): _dropped for status in Status},
}


def advance(trial: Trial, event: TrialEvent) -> Trial:
    """The trial after `event`.

    Raises InvalidTransition, with a description of the trial, if the table has no row.
    """
    row = TABLE.get((trial.status, type(event)))
    if row is None:
        raise InvalidTransition(trial.story(), event)
    return row(trial, event)


# -- attempts -------------------------------------------------------------------------------------

_MOST_ATTEMPTS = 100
# The end of a traceback has the frames of the user's code. `error.txt` has all of it.
_MOST_TRACEBACK = 4_000


def dated(before: Trial, after: Trial, event: TrialEvent, now: float) -> Trial:
    """The trial after `event`, which has changed its status or started its worker, with the times
    of its attempts. `now` is in seconds since 1970."""
    if isinstance(event, Launched):
        return _with_times(after, began_at=0.0, ended_at=0.0)
    if isinstance(event, Started):
        return _with_times(after, began_at=before.began_at or now, ended_at=0.0)
    if isinstance(event, Reopened):
        return _with_attempt(after, before, _ended(before))
    if not before.status.has_worker or after.status.has_worker:
        return after
    at = event.ended_at if isinstance(event, Interrupted) and event.ended_at else now
    ended = _with_times(after, began_at=before.began_at, ended_at=at)
    if after.status.is_final:
        return ended
    return _with_attempt(ended, ended, _left(event, before))


def _left(event: TrialEvent, before: Trial) -> dict[str, Any]:
    """How an attempt ended whose trial goes on."""
    match event:
        case Retried() | Shrunk():
            failure = event.failure
            kept = replace(failure, traceback=failure.traceback[-_MOST_TRACEBACK:])
            return {"end": "failed", "failure": kept}
        case Interrupted(is_pause=False):
            return {"end": "interrupted", "why": event.why} if before.began_at else {}
        case PauseOrdered() | Interrupted():
            return {"end": "paused", "why": event.why}
        case _:
            return {"end": "ended"}


def _ended(trial: Trial) -> dict[str, Any]:
    """How the last attempt of a trial ended that a restore reopens."""
    if trial.error is not None:
        return {"end": "failed", "failure": trial.error}
    return {"end": "ended", "stop": trial.stop}


def _with_attempt(trial: Trial, was: Trial, how: dict[str, Any]) -> Trial:
    """The trial with its newest attempt, as it `was`, among those that have ended."""
    known = trial.attempts
    if not how or not was.attempt or (known and known[-1].attempt == was.attempt):
        return trial
    newest = Attempt(
        attempt=was.attempt,
        began_at=was.began_at,
        ended_at=was.ended_at,
        from_iteration=was.resumed_from,
        to_iteration=was.iteration,
        from_time_s=was.time_at_start_s,
        to_time_s=was.time_total_s,
        place=was.place,
        **how,
    )
    if len(known) >= _MOST_ATTEMPTS:
        known = (known[0], *known[2 - _MOST_ATTEMPTS :])
    return evolve(trial, attempts=(*known, newest))
