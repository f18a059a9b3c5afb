"""What users hook into a run with, and which hook a change of a trial means."""

from __future__ import annotations

from typing import Any

from holdfast.described import Described
from holdfast.experiment.callbacks.trial_view import TrialView
from holdfast.scheduler.events import Event, Exited, Raised, StopperAnswered
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.events import Reported, Started
from holdfast.trial.stopper import Stopper
from holdfast.trial.trial import Status, Trial


class Callback(Described):
    """Hooks into a run: subclass it, override what you need, give it to `RunConfig(callbacks=)`.

    All hooks run in one thread of the script's process, in the order of what happened, somewhat
    later than it happened. `trials` are all trials so far and `trial` the one concerned, the same
    object each time. An exception in a hook is shown and does not end the run, except in `setup`.
    """

    def setup(
        self,
        stop: Stopper | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Called once, before anything else; an exception here fails `fit()`."""

    def on_step_begin(self, iteration: int, trials: list[TrialView], **info: Any) -> None:
        """Called before each batch of events, with the number of the batch."""

    def on_step_end(self, iteration: int, trials: list[TrialView], **info: Any) -> None:
        """Called after each batch of events, with the number of the batch."""

    def on_trial_start(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called when an attempt at the trial starts, the first one and each later one."""

    def on_trial_restore(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called after `on_trial_start` where the attempt resumes from a checkpoint."""

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
        """Called with each row that the trial reports; `result` may be changed freely."""

    def on_trial_complete(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called when the trial has ended well or was stopped."""

    def on_trial_recover(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """Called when the trial has failed and will be tried again."""

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
        """Called once, when every event was delivered."""

    def get_state(self) -> dict[str, Any] | None:
        """What a restored run needs, given back to `set_state`; None for nothing."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Called after `setup` of a restored run with what `get_state` gave last."""


class LoggerCallback(Callback):
    """A Callback for trackers: override the `log_trial_*` methods, each about one trial."""

    def log_trial_start(self, trial: TrialView) -> None:
        """An attempt at the trial starts."""

    def log_trial_restore(self, trial: TrialView) -> None:
        """The attempt that has just started resumes from a checkpoint."""

    def log_trial_save(self, trial: TrialView) -> None:
        """The trial has reported a checkpoint."""

    def log_trial_result(self, iteration: int, trial: TrialView, result: dict[str, Any]) -> None:
        """The trial has reported `result`."""

    def log_trial_end(self, trial: TrialView, failed: bool = False) -> None:
        """The trial has ended; `failed` for good, or well."""

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
    """The names of the hooks that this change of a trial means, in their order.

    `event` is None where the trial was changed by what happened to something else.
    """
    if before is None or after is None or before is after:
        return ()
    hooks: tuple[str, ...] = ()
    # A reused worker may turn out unfit, and its attempt then starts once more elsewhere.
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
    """One event may fail an attempt and launch the next: then the error is already forgotten."""
    if not isinstance(event, (Raised, Exited, StopperAnswered)) or not before.status.has_worker:
        return False
    failed = after.error is not None and after.error is not before.error
    return (failed or after.attempt > before.attempt) and not after.status.is_final
