"""The base class of trackers: callbacks that run in their own process, which reads the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar, Final

from holdfast.compat import ray_path
from holdfast.dataclass import dataclass
from holdfast.described import Construction
from holdfast.experiment.callbacks.callback import LoggerCallback
from holdfast.experiment.callbacks.trial_view import Surroundings, TrialView
from holdfast.experiment.trackers.delivery import RetryDelays
from holdfast.text.trials import stop_reason
from holdfast.trial.trial import StopReason, Trial

# Errors that mean a fault of the arguments rather than of the service.
_MISTAKES: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError,
                    TypeError, ValueError)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The row and attempt that a tracker is called about.

    `row` counts all rows of the trial, including repeated ones: it equals the iteration until
    something is repeated, and never decreases.
    """

    attempt: int = 0
    row: int = 0


class TrackedTrial(TrialView):
    """A trial as a tracker sees it.

    In addition to the attributes of every view it has `run_id`, which stays the same over all
    attempts and restores, the tags of the RunConfig, and the tracker's position in it.
    """

    def __init__(
        self,
        trial: Trial,
        surroundings: Surroundings,
        experiment_id: str,
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(trial, surroundings)
        self.run_id = f"{trial.trial_id}-{experiment_id}"
        self.run_tags = tags
        self.group = self.experiment_dir_name
        self.told = Told()

    @classmethod
    def of(cls, view: TrialView) -> TrackedTrial:
        """The trial of a view, for a tracker that `is_here`."""
        if isinstance(view, cls):
            return view
        found = cls(view._trial, view._surroundings, view.experiment_dir_name)
        found.told = Told(attempt=view._trial.attempt, row=view._trial.iteration)
        return found

    @property
    def stop_reason(self) -> str:
        """The reason for its end, as in `Result.stop_reason`; "interrupted" if it has none."""
        return (stop_reason(self._trial, is_live=False) or StopReason.INTERRUPTED).value


def _with_tracked(hook: Callable[..., None]) -> Callable[..., None]:
    @wraps(hook)
    def called(self: Tracker, iteration: int, trials: Any, trial: TrialView, **info: Any) -> None:
        hook(self, iteration, trials, TrackedTrial.of(trial), **info)

    return called


class Tracker(LoggerCallback):
    """Base class of callbacks that send data to a tracking service.

    The object in `RunConfig(callbacks=)` is pickled and sent to a *tracker process*, which reads
    the journal and calls the `log_trial_*` methods. A call that raises is repeated later. A
    tracker that does not answer delays nothing.
    """

    delays: ClassVar[RetryDelays] = RetryDelays()
    needs_trust: ClassVar[str] = "sends reports to the address in its arguments"

    @property
    def is_here(self) -> bool:
        """True for a class of a script for Ray: it is called in the script's own process, as Ray
        does, so that what it notes there is there. After a kill nothing is sent again."""
        return ray_path.is_active() and not type(self).__module__.startswith("holdfast.")

    def check(self, environ: Mapping[str, str]) -> None:
        """Raise an error for a tracker that can never work: a missing library, a missing key.

        Called before the first trial in the user's process, so it imports nothing heavy.
        """

    def secrets(self) -> dict[str, Any]:
        """Attributes that are sent to the tracker process and never stored."""
        return {}

    def target(self) -> str:
        """Where the tracker sends, for messages: without a password; "" if there is one place."""
        return ""

    def flush(self) -> None:
        """Return once everything logged so far is kept, except for trials that `holds` names.

        After an exception all of it is sent again.
        """

    def holds(self) -> frozenset[str]:
        """The ids of trials with logged data that may not have arrived yet."""
        return frozenset()

    def is_refusal(self, error: Exception) -> bool:
        """True if a retry is useless. The row is then tried a few more times and set aside.

        After any other error it is tried until it works.
        """
        return isinstance(error, _MISTAKES) and not isinstance(error, OSError)

    def without_secrets(self, construction: Construction) -> Construction:
        # Calls the method of holdfast's class: a subclass may not be ready, because its
        # constructor still runs.
        return construction.without(*construction.kind.secrets(self))

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out secrets, because a pickle may be stored in a file."""
        return {**self.__dict__, **dict.fromkeys(self.secrets())}


for _hook in ("start", "restore", "save", "result", "complete", "error"):
    _name = f"on_trial_{_hook}"
    setattr(Tracker, _name, _with_tracked(getattr(LoggerCallback, _name)))
