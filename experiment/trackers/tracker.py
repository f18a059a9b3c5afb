"""A tracker as a callback: it lives in a process of its own, which reads the journal for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from holdfast.dataclass import dataclass
from holdfast.described import Made, without
from holdfast.experiment.callbacks.callback import LoggerCallback
from holdfast.experiment.callbacks.trial_view import Surroundings, TrialView
from holdfast.experiment.trackers.delivery import RetryDelays
from holdfast.trial.trial import Trial

# What code raises for what it is given, rather than for what others do.
_MISTAKES: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError,
                    TypeError, ValueError)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Which row of which attempt a tracker is told about.

    `row` counts all rows of the trial, those that were repeated after a failure too: it is the
    iteration until something is repeated, and never goes back.
    """

    attempt: int = 0
    row: int = 0


class TrackedTrial(TrialView):
    """A trial as a tracker sees it. Beside what every callback sees it has `run_id`, the same over
    all attempts and restores, and where the tracker is in it."""

    def __init__(self, trial: Trial, surroundings: Surroundings, experiment_id: str) -> None:
        super().__init__(trial, surroundings)
        self.run_id = f"{trial.trial_id}-{experiment_id}"
        self.group = self.experiment_dir_name
        self.told = Told()


class Tracker(LoggerCallback):
    """Base of the callbacks that speak to a tracking service.

    The object that is given to `RunConfig(callbacks=)` travels, pickled, to a *tracker process*: a
    process that reads the journal and calls the `log_trial_*` methods there. A call that raises is
    made again later, and what a tracker does not answer keeps nobody waiting.
    """

    delays: ClassVar[RetryDelays] = RetryDelays()
    needs_trust: ClassVar[str] = "sends what trials report to where its arguments say"

    def check(self, environ: Mapping[str, str]) -> None:
        """Raise before the first trial for what can never work: a library that is not installed,
        a key that is nowhere. In the user's process, so it imports nothing heavy."""

    def secrets(self) -> dict[str, Any]:
        """Attributes that travel to the tracker process and are in no file."""
        return {}

    def flush(self) -> None:
        """Return when what was logged so far is kept, but for trials that `holds` names.

        After an exception all of it is given again.
        """

    def holds(self) -> frozenset[str]:
        """Ids of trials of which something was logged and may not have arrived yet."""
        return frozenset()

    def is_refusal(self, error: Exception) -> bool:
        """Whether trying again is useless: then a few more tries are made, and the row is set
        aside. Anything else is tried until it works."""
        return isinstance(error, _MISTAKES) and not isinstance(error, OSError)

    def may_keep(self, made: Made) -> Made:
        # Asked of the class of ours: a subclass may not be ready, whose constructor goes on.
        return without(made, *made.kind.secrets(self))

    def __getstate__(self) -> dict[str, Any]:
        """Without secrets: a pickle may lie in a file."""
        return {**self.__dict__, **dict.fromkeys(self.secrets())}
