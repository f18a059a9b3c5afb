"""The base class of trial schedulers: they see events and decide which trials stop, pause or
resume. `SchedulerHooks` has the methods that Ray calls.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Protocol, Self

from holdfast.dataclass import dataclass
from holdfast.described import Described
from holdfast.scheduler.events import ExperimentSpec
from holdfast.schema import Count
from holdfast.trial.resources import Bundles
from holdfast.trial.trial import Trial
from holdfast.trial.values import Config


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
    """True if the class defines this method itself."""
    return getattr(kind, name, None) is not getattr(SchedulerHooks, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTrial:
    """Stop the trial.

    The rest is for people: `why` says what was decisive, `is_early` whether the trial had more to
    do, None if that is not said. `by` is the name of the scheduler, "" for the experiment's.
    """

    trial_id: str
    why: str = ""
    is_early: bool | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRung:
    """Keep for people that the trial has reached a rung: nothing else changes.

    `promoted` says whether it continues; None if it waits there, or ends for another reason.
    `value` is its metric there, and `cutoff` what a trial needed then to continue; None if there
    is no such number. A second note of the same `milestone` and `bracket` replaces the first.
    """

    trial_id: str
    milestone: float
    promoted: bool | None = None
    value: float | None = None
    cutoff: float | None = None
    bracket: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseTrial:
    """Pause a running trial: it saves a checkpoint and gives up its worker until UnpauseTrial.

    A trial without any checkpoint starts from scratch when it resumes, if it `may_restart`;
    otherwise this ends the run.
    """

    trial_id: str
    may_restart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseTrial:
    """Resume a paused trial from its newest checkpoint, as soon as resources are free."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTrial:
    """Save a checkpoint of a class trainable that has just reported, before it continues.

    A function decides itself when it saves.
    """

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneTrial:
    """Resume the trial from the newest checkpoint of `source`, with `config`; its own state is
    dropped.

    A paused trial stays paused until UnpauseTrial. With `is_logged`, the policy's log has the
    change (`holdfast.experiment.projector.trial_files`).
    """

    trial_id: str
    source: str
    config: Config
    is_logged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTrial:
    """Save the trial and resume it with another config, other resources, or both.

    A paused trial stays paused until UnpauseTrial. None leaves the config or the resources
    unchanged.
    """

    trial_id: str
    config: Config | None = None
    resources: Bundles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUser:
    """Call the user's code through `TrialScheduler.answer(question)`, outside the control loop.

    A trial that has just reported waits until the scheduler has decided on the answer; a trial
    that waits for a worker does not start before that. The value of "config" in the question and
    in the answer is a trial's config: the user's code sees its own objects in it.
    """

    trial_id: str
    question: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Show the user a message."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """End the experiment, because it cannot continue as intended; it can be restored."""

    message: str


Decision = (
    StopTrial
    | NoteRung
    | PauseTrial
    | UnpauseTrial
    | SaveTrial
    | CloneTrial
    | ChangeTrial
    | AskUser
    | Tell
    | Abort
)

# The decisions at each observation that one event caused.
Answers = Sequence[Sequence[Decision]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAdded:
    """The search has suggested the trial, which waits for its first worker."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReported:
    """The trial has reported `row`, which includes the automatic metrics."""

    trial_id: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAnswered:
    """`TrialScheduler.answer` has returned `answer` for an AskUser about the trial."""

    trial_id: str
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """The trial is TERMINATED or ERROR."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMoreTrials:
    """The search has ended: no other trial will be added."""

    trial_id: str = field(default="", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    """Every living trial is paused, and the search adds none in this state.

    If the scheduler resumes none, all are resumed.
    """

    trial_id: str = field(default="", init=False)


Observation = TrialAdded | TrialReported | UserAnswered | TrialEnded | NoMoreTrials | Stalled


class View(Protocol):
    """The parts of the experiment that a policy may see."""

    @property
    def trials(self) -> Mapping[str, Trial]: ...

    @property
    def spec(self) -> ExperimentSpec: ...

    @property
    def total_resources(self) -> Mapping[str, float]:
        """The resources for all trials together, as in `{"CPU": 8, "GPU": 1}`."""

    @property
    def epoch(self) -> int:
        """1, plus one for each restore, which may resume finished trials."""

    @property
    def has_queue(self) -> bool:
        """True if trials wait for resources."""

    @property
    def asking(self) -> bool:
        """True if the search is working on another trial, for which resources are free."""

    @property
    def is_complete(self) -> bool:
        """True if the search is known to have no more trials."""

    @property
    def questions(self) -> Mapping[str, Config]:
        """The questions that the user's code has not answered yet, by trial."""

    @property
    def has_all_rungs(self) -> bool:
        """True if `Trial.rungs` has all rungs that were noted since the experiment began."""


class TrialScheduler(SchedulerHooks, Described):
    """Base class of schedulers. `decide` is pure: the same view and event give the same decisions.

    Decisions are recorded in the journal with their event. A decision that does not fit its trial
    (stop one that has ended, pause one that does not run, unpause one that is not paused) is
    ignored.

    A scheduler may keep state. A restore rebuilds the state by calling `decide` with the journal's
    events again and ignores its decisions, so the state must depend on nothing else. After a
    failure or a restore, a trial may report the same iterations again.

    `metric` and `mode` are those of the Tuner if they are None.

    A user's subclass that defines methods of SchedulerHooks instead of `decide` is called as Ray
    calls it.
    """

    metric: str | None = None
    mode: str | None = None
    plan: ClassVar[str] = ""
    """A sentence for the user on how an automatic scheduler works; "" for all others."""
    changes_configs: bool = False
    """True if its trials train with one config after another."""
    needs_checkpoints = False
    """Whether it resumes trials from checkpoints, so that a trainable that cannot save is an
    error."""

    def begun(self, spec: ExperimentSpec) -> Self:
        """A fresh copy that decides for this experiment.

        Raises InvalidConfig for settings that do not fit the experiment.
        """
        return copy.deepcopy(self)

    def recall(self, view: View) -> bool:
        """Rebuild the state that this fresh copy would have after all events so far, from the
        trials alone. Returns False if they do not say enough: a restore then calls `decide` with
        every event, which takes ten times as long."""
        return False

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        """Return the decisions about `event`, an empty sequence for none.

        `view` shows the trials, the settings of the experiment and the resources of the machine.
        """
        raise NotImplementedError(f"{type(self).__name__} must define decide()")

    def follow(self, before: Trial, trial: Trial) -> None:
        """Called with each change of a trial, in a replay, too: for an index of the trials. May
        look at nothing else."""

    def answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call the user's functions for an AskUser. Must not change this object; may block."""
        raise NotImplementedError(
            f"{type(self).__name__} returns AskUser, so it must define answer()"
        )


class FIFOScheduler(TrialScheduler):
    """Every trial runs to its end, in the order in which it was suggested."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        return ()


def is_memoryless(policy: TrialScheduler | None) -> bool:
    """True if it decides from the view alone, so that it can start from a snapshot without a
    replay."""
    return policy is None or type(policy) is FIFOScheduler
