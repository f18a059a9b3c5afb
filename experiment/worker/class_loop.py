"""Runs a class trainable in its worker: step by step, with a checkpoint when one is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.experiment.worker.afterwards import fails_nothing
from holdfast.experiment.worker.session import Session, TrialStopped
from holdfast.experiment.worker.trainable import Trainable
from holdfast.experiment.worker.wrap import exports_of
from holdfast.syncer.checkpoint.checkpoint import Checkpoint


class NeedsNewProcess(Exception):
    """The class trainable cannot be used for another config: a new process is needed."""


def drive(
    kind: Callable[[dict[str, Any]], Trainable],
    config: dict[str, Any],
    session: Session,
    kept: Trainable | None,
) -> Trainable:
    """Step a class trainable until it is done or stopped."""
    if kept is not None:
        if not kept.reset(config):
            raise NeedsNewProcess
        trainable = kept
    else:
        trainable = kind(config)
    try:
        _resume(trainable, session)
        if _steps(trainable, session) and (formats := exports_of(type(trainable))):
            trainable.export_model(formats)
    except BaseException:
        with fails_nothing():
            trainable.cleanup()
        raise
    if not session.job.reuse_actors:
        with fails_nothing():
            trainable.cleanup()
    return trainable


def _resume(trainable: Trainable, session: Session) -> None:
    checkpoint = session.checkpoint()
    if checkpoint is not None:
        trainable.begin_at(session.assignment.iteration, session.assignment.time_total_s)
        trainable.restore(checkpoint)
        # The journal decides how far a checkpoint of another trial is.
        trainable.begin_at(session.assignment.iteration, session.assignment.time_total_s)


def _steps(trainable: Trainable, session: Session) -> bool:
    """Step until the end. A stop takes effect between two steps, so a checkpoint may follow it.

    Returns whether the trial is done, and will not continue later.
    """
    saved_at = session.assignment.iteration
    done = False
    while not done:
        result = trainable.train()
        session.end_forked()
        done = bool(result.get("done"))
        wanted = _wants_checkpoint(session, trainable, result, done=done)
        if wanted:
            saved_at = trainable.iteration
        try:
            session.report(
                _metrics_of(result),
                _save(trainable, session) if wanted else None,
            )
        except TrialStopped:
            wanted = session.job.checkpoint_at_end or session.must_save
            if wanted and saved_at < trainable.iteration:
                session.save(_save(trainable, session))
            return session.ending == "returned" and not session.must_save
        if session.must_save and saved_at < trainable.iteration:
            session.save(_save(trainable, session))
            saved_at = trainable.iteration
    return True


# Counted by the session itself, over all attempts.
_COUNTED = frozenset({"training_iteration", "time_this_iter_s", "time_total_s"})


def _metrics_of(result: dict[str, Any]) -> dict[str, Any]:
    """The user's own metrics; every row has a `done`, which only a true one changes."""
    left_out = _COUNTED if result.get("done") else _COUNTED | {"done"}
    return {key: value for key, value in result.items() if key not in left_out}


def _wants_checkpoint(
    session: Session, trainable: Trainable, result: dict[str, Any], *, done: bool
) -> bool:
    frequency = session.job.checkpoint_frequency
    if frequency and trainable.iteration % frequency == 0:
        return True
    if session.is_preempted and type(trainable).save_checkpoint is not Trainable.save_checkpoint:
        return True
    return bool(result.get("should_checkpoint")) or (done and session.job.checkpoint_at_end)


def _save(trainable: Trainable, session: Session) -> Checkpoint:
    return trainable.save(str(session.staging_directory()))
