"""The methods of a scheduler in Ray's style: it is called with trials and answers in words."""

from __future__ import annotations

from typing import Any, ClassVar


class SchedulerHooks:
    """What a user's subclass of TrialScheduler or FIFOScheduler may define instead of `decide`.

    holdfast calls it in a thread, off the control loop; `holdfast.scheduler.policies.ray_style`
    says when. `tune_controller` has `get_trials()`, `get_live_trials()`, `get_trial(trial_id)`,
    `pause_trial(trial)` and `stop_trial(trial)`.
    """

    CONTINUE: ClassVar[str] = "CONTINUE"
    PAUSE: ClassVar[str] = "PAUSE"
    STOP: ClassVar[str] = "STOP"
    NOOP: ClassVar[str] = "NOOP"

    _metric: str | None = None
    _mode: str | None = None

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Called first, with the goal of the TuneConfig. False: it has a goal of its own."""
        if metric and self._metric:
            return False
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """The search has suggested the trial, which starts after this call."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Return CONTINUE, PAUSE, STOP or NOOP for a trial that has reported `result`."""
        return self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """The trial has ended without an error."""

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """The trial has failed for good."""

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """The trial was ended while it was paused, or before it began."""

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Return the paused trial that resumes next, or None."""
        trials = tune_controller.get_trials()
        waiting = [
            one for status in ("PENDING", "PAUSED") for one in trials if one.status == status
        ]
        return waiting[0] if waiting else None

    def debug_string(self) -> str:
        """A line about the scheduler, which is shown at the end of the run."""
        return ""


HOOKS = (
    "set_search_properties",
    "on_trial_add",
    "on_trial_result",
    "on_trial_complete",
    "on_trial_error",
    "on_trial_remove",
    "choose_trial_to_run",
)
# Called when a trial has ended.
ENDS = ("on_trial_complete", "on_trial_error", "on_trial_remove")


def hooks_of(kind: type[Any]) -> tuple[str, ...]:
    """The hooks that a class defines itself."""
    return tuple(name for name in HOOKS if is_own(kind, name))


def is_own(kind: type[Any], name: str) -> bool:
    """Whether the class defines this method itself."""
    return getattr(kind, name, None) is not getattr(SchedulerHooks, name)
