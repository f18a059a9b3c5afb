"""The base classes of callbacks, and the hooks that a change of a trial calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.described import Described
from holdfast.experiment.callbacks.trial_view import TrialView
from holdfast.scheduler.events import Event, Exited, Raised, StopperAnswered
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import TrialError
from holdfast.trial.events import Reported, Started
from holdfast.trial.scaling import ScalingConfig
from holdfast.trial.stoppers import Stopper
from holdfast.trial.trial import Status, Trial
from holdfast.trial.values import LOOP_CONFIG


class Callback(Described):
    """Hooks into a run: subclass it, override the hooks you need, pass it to
    `RunConfig(callbacks=)`.

    All hooks run in one thread of the script's process, in the order of events and with some
    delay. `trials` are all trials so far and `trial` the one concerned, the same object each time.
    An exception in a hook is shown and does not end the run, except in `setup`.
    """

    def setup(
        self,
        stop: Stopper | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Called once, before all other hooks; if it raises, `fit()` fails."""

    def on_step_begin(self, iteration: int, trials: list[TrialView], **info: Any) -> None:
        """Called before each batch of events, with the number of the batch."""

    def on_step_end(self, iteration: int, trials: list[TrialView], **info: Any) -> None:
        """Called after each batch of events, with the number of the batch."""

    def on_trial_start(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called when an attempt at the trial starts, the first one or a later one."""

    def on_trial_restore(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called after `on_trial_start` if the attempt resumes from a checkpoint."""

    def on_trial_save(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called when the trial has reported a checkpoint."""

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TrialView],
        trial: TrialView,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Called with each row that the trial reports; you may change `result`."""

    def on_trial_complete(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called when the trial has ended successfully or was stopped."""

    def on_trial_recover(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called when the trial has failed and will be retried."""

    def on_trial_error(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called when the trial has failed for good."""

    def on_checkpoint(
        self,
        iteration: int,
        trials: list[TrialView],
        trial: TrialView,
        checkpoint: Checkpoint,
        **info: Any,
    ) -> None:
        """Called with each Checkpoint that the trial reports, after `on_trial_save`."""

    def on_experiment_end(self, trials: list[TrialView], **info: Any) -> None:
        """Called once, after all events."""

    def get_state(self) -> dict[str, Any] | None:
        """Return the state that a restored run passes to `set_state`; None for no state."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Called after `setup` of a restored run with the last state that `get_state` returned."""


class LoggerCallback(Callback):
    """A Callback for trackers: override the `log_trial_*` methods, each about one trial."""

    def log_trial_start(self, trial: TrialView) -> None:
        """Called when an attempt at the trial starts."""

    def log_trial_restore(self, trial: TrialView) -> None:
        """Called when the attempt that has just started resumes from a checkpoint."""

    def log_trial_save(self, trial: TrialView) -> None:
        """Called when the trial has reported a checkpoint."""

    def log_trial_result(self, iteration: int, trial: TrialView, result: dict[str, Any]) -> None:
        """Called when the trial has reported `result`."""

    def log_trial_end(self, trial: TrialView, failed: bool = False) -> None:
        """Called when the trial has ended: `failed` for good, or successfully."""

    def on_trial_start(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self.log_trial_save(trial)

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TrialView],
        trial: TrialView,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self.log_trial_end(trial, failed=True)


def hooks_for(event: Event | None, before: Trial | None, after: Trial | None) -> tuple[str, ...]:
    """The hooks that this change of a trial calls, in order.

    `event` is None if an event of something else changed the trial.
    """
    if before is None or after is None or before is after:
        return ()
    hooks: tuple[str, ...] = ()
    # A reused worker may be unsuitable; its attempt then starts again in another one.
    if isinstance(event, Started) and not before.place.pid:
        hooks = ("on_trial_start", "on_trial_restore")[: 1 + (after.resumed_from > 0)]
    elif isinstance(event, Reported):
        saved = ("on_trial_save", "on_checkpoint")
        hooks = ("on_trial_result", *(saved if event.checkpoint else ()))
    elif _was_retried(event, before, after):
        hooks = ("on_trial_recover",)
    if after.status is not before.status:
        hooks += _ENDINGS.get(after.status, ())
    return hooks


_ENDINGS: dict[Status, tuple[str, ...]] = {
    Status.TERMINATED: ("on_trial_complete",),
    Status.ERROR: ("on_trial_error",),
}


def _was_retried(event: Event | None, before: Trial, after: Trial) -> bool:
    """True if the trial failed and is retried.

    One event may fail an attempt and launch the next: then the trial no longer has the error.
    """
    if not isinstance(event, (Raised, Exited, StopperAnswered)) or not before.status.has_worker:
        return False
    failed = after.error is not None and after.error is not before.error
    return (failed or after.attempt > before.attempt) and not after.status.is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRunContext:
    """The training that a hook is about: its settings, its trial, and the folder of its experiment
    in storage.

    `run_id` is the same after a restore. `scaling_config` is None for a trial of a Tuner that
    runs no trainer.
    """

    run_id: str
    run_config: RunConfig | None
    scaling_config: ScalingConfig | None
    train_loop_config: dict[str, Any]
    trial_id: str
    trial_name: str
    experiment_name: str
    experiment_path: str


class UserCallback(Callback):
    """Hooks into a training: subclass it, override the hooks you need, pass it to
    `RunConfig(callbacks=)`. It is a Callback, whose other hooks it has, too, and which says in
    which thread they run.
    """

    def after_report(
        self,
        run_context: TrainRunContext,
        metrics: list[dict[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        """Called with each report of the training, once it is in the journal.

        `metrics` has one dict: those of rank 0. With `keep_all_metrics=True` of the trainer it has
        one for each rank.
        """

    def after_exception(
        self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]
    ) -> None:
        """Called when workers have failed, whether or not the training is retried.

        `worker_exceptions` has a TrialError by the rank that is the cause; its text has the errors
        of other ranks, too.
        """

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TrialView],
        trial: TrialView,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        checkpoint = trial.checkpoint if result.get("checkpoint_dir_name") else None
        self.after_report(_context(trial), _by_rank(trial.reported), checkpoint)

    def on_trial_recover(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._failed(trial)

    def on_trial_error(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._failed(trial)

    def _failed(self, trial: TrialView) -> None:
        failure = trial.failure
        if failure is not None:
            error = TrialError(trial.trial_id, failure, trial.local_path)
            self.after_exception(_context(trial), {failure.rank or 0: error})


def _context(trial: TrialView) -> TrainRunContext:
    around = trial.surroundings
    config = trial.config
    return TrainRunContext(
        run_id=around.run_id,
        run_config=around.run_config,
        scaling_config=around.scaling_of(config) if around.scaling_of else None,
        train_loop_config=config.get(LOOP_CONFIG, config),
        trial_id=trial.trial_id,
        trial_name=str(trial),
        experiment_name=trial.experiment_dir_name,
        experiment_path=around.experiment_path,
    )


def _by_rank(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    ranks = row.get("ranks")
    if isinstance(ranks, Mapping):
        return [dict(ranks[rank]) for rank in sorted(ranks, key=int)]
    return [dict(row)]
