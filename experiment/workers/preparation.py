"""From an attempt's resources to its start: gets the checkpoint that it resumes from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from holdfast.experiment.uploads.unrecorded_checkpoints import found_notice
from holdfast.experiment.workers.start_checkpoints import (
    CannotClone,
    CannotPrepare,
    Experiment,
    StartCheckpoints,
)
from holdfast.runtime.tasks import TaskScope
from holdfast.scheduler.effects import Launch
from holdfast.scheduler.events import Event, Resumed
from holdfast.syncer.errors import StorageError
from holdfast.text.errors import message_of, named, type_name
from holdfast.trial.errors import Failure, FailureKind
from holdfast.trial.events import Adopted, Saved
from holdfast.trial.trial import Origin, Trial


class PreparationHost(Experiment, Protocol):
    """The owner of the run's events and tasks."""

    tasks: TaskScope

    def post(self, event: Event) -> None: ...

    def lose(self, trial_id: str, index: int, reason: str) -> None: ...

    def warn(self, text: str) -> None: ...


class Preparation:
    """Prepares attempts that have their resources: then `start` begins one, or `fail` ends it."""

    def __init__(
        self,
        host: PreparationHost,
        checkpoints: StartCheckpoints,
        *,
        start: Callable[[Launch, Trial], None],
        fail: Callable[[Launch, Failure], None],
    ) -> None:
        self._host = host
        self._checkpoints = checkpoints
        self._start = start
        self._fail = fail
        self._verifying: dict[str, asyncio.Task[Any]] = {}

    def inherit(self, trials: Iterable[Trial], resumed: Resumed | None) -> None:
        """Remember that these trials come from an earlier incarnation."""
        self._checkpoints.inherit(trials, resumed)

    def begin(self, effect: Launch) -> None:
        """Start the attempt, or first a task that gets its checkpoint."""
        trial = self._host.machine.trials[effect.trial_id]
        if effect.origin is not None:
            work = self._adopt_and_start(effect, effect.origin, trial)
        elif self._checkpoints.has_to_look(effect, trial):
            work = self._verify_and_start(effect, trial)
        else:
            self._start(effect, trial)
            return
        self._verifying[effect.trial_id] = self._host.tasks.start(work)

    def cancel(self, trial_id: str) -> bool:
        """Give up the trial's attempt. Returns whether its checkpoint was still being read."""
        verifying = self._verifying.pop(trial_id, None)
        if verifying is not None:
            verifying.cancel()
        return verifying is not None

    async def _adopt_and_start(self, effect: Launch, origin: Origin, trial: Trial) -> None:
        """Start a clone from its copy of another trial's checkpoint, or from its own if that
        fails."""
        record, problem = None, ""
        try:
            record = await self._checkpoints.adopt(origin, trial, effect)
        except (CannotClone, StorageError, OSError) as error:
            problem = str(error)
        except Exception as error:  # only this trial is concerned
            problem = named(error)
        del self._verifying[trial.trial_id]
        if record is None:
            source = self._host.machine.trials[origin.trial_id].spec
            self._host.warn(
                f"{trial.spec.name} cannot resume from checkpoint {origin.checkpoint.index} of "
                f"{source.name} and uses its own instead: {problem}"
            )
            self._fail(effect, _lost_checkpoint(problem))
            return
        adopted = Adopted(trial_id=trial.trial_id, attempt=effect.attempt, checkpoint=record)
        self._host.post(adopted)
        effect = replace(effect, checkpoint=record, origin=None)
        self._start(effect, self._host.machine.trials[trial.trial_id])

    async def _verify_and_start(self, effect: Launch, trial: Trial) -> None:
        """Drop a checkpoint that is lost: the trial resumes from a newer one that no record names,
        or from the one before."""
        try:
            verified = await self._checkpoints.verify(effect, trial)
        except CannotPrepare as failed:
            del self._verifying[trial.trial_id]
            self._fail(effect, setup_failure(failed.what, failed.cause, failed.kind))
            return
        del self._verifying[trial.trial_id]
        if verified.lost and effect.checkpoint is not None:
            self._host.lose(trial.trial_id, effect.checkpoint.index, verified.lost)
        if verified.found is not None:
            saved = Saved(
                trial_id=trial.trial_id, attempt=effect.attempt, checkpoint=verified.found
            )
            self._host.warn(found_notice(saved))
            self._host.post(saved)
            effect = replace(effect, checkpoint=verified.found)
        elif verified.lost:
            self._fail(effect, _lost_checkpoint(verified.lost))
            return
        self._start(effect, self._host.machine.trials[trial.trial_id])


def setup_failure(what: str, error: Exception, kind: FailureKind = "setup") -> Failure:
    """The failure of one trial. Its checkpoint is not at fault, and stays."""
    message = f"{what}: {message_of(error)}"
    return Failure(kind=kind, type_name=type_name(error), message=message)


def _lost_checkpoint(problem: str) -> Failure:
    """The failure of an attempt whose checkpoint cannot be used. The next attempt looks for
    another one."""
    return Failure(kind="checkpoint", type_name="CheckpointLost", message=problem)
