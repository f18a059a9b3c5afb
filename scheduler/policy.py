"""The seam of trial schedulers: look at what was reported, decide who stops, waits or goes on."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, Self

from holdfast.dataclass import dataclass
from holdfast.described import Described
from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.encoding import Config
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import Bundles
from holdfast.trial.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTrial:
    """The trial has had enough."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseTrial:
    """A running trial saves itself and gives up its worker, until UnpauseTrial."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseTrial:
    """A paused trial goes on from its newest checkpoint, as soon as there is room."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTrial:
    """A class trainable that has just reported saves itself before it goes on.

    A function decides itself when it saves.
    """

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneTrial:
    """The trial leaves what it has, and goes on from the newest checkpoint of `source`.

    With `config`. One that is paused stays so until UnpauseTrial. What `is_logged` stands in the
    policy's log (`holdfast.experiment.projector.policy_log`).
    """

    trial_id: str
    source: str
    config: Config
    is_logged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTrial:
    """The trial saves itself and goes on with another config, other resources, or both.

    One that is paused stays so until UnpauseTrial. None leaves what there is.
    """

    trial_id: str
    config: Config | None = None
    resources: Bundles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUser:
    """Have the user's code asked: `TrialScheduler.answer(question)`, off the control loop.

    A trial that has just reported waits for what the scheduler makes of the answer, and one that
    waits for a worker does not start before. What stands under "config" in the question, and in
    the answer, is a trial's config: the user's code sees their own objects in it.
    """

    trial_id: str
    question: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """The user is told."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The experiment cannot be gone on with as it was meant; it can be restored."""

    message: str


Decision = (
    StopTrial
    | PauseTrial
    | UnpauseTrial
    | SaveTrial
    | CloneTrial
    | ChangeTrial
    | AskUser
    | Tell
    | Abort
)

# What was decided at each observation that one event led to.
Answers = Sequence[Sequence[Decision]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAdded:
    """The search has suggested the trial, which waits for its first worker."""

    trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReported:
    """`row` is what the trial reported, with the automatic metrics."""

    trial_id: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAnswered:
    """What `TrialScheduler.answer` has returned for an AskUser about the trial."""

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
    """Every trial that has not ended is paused, and none will be added as it is.

    If none is unpaused now, all are.
    """

    trial_id: str = field(default="", init=False)


Observation = TrialAdded | TrialReported | UserAnswered | TrialEnded | NoMoreTrials | Stalled


class View(Protocol):
    """What a policy may see of the experiment."""

    @property
    def trials(self) -> Mapping[str, Trial]: ...

    @property
    def spec(self) -> ExperimentSpec: ...

    @property
    def total_resources(self) -> Mapping[str, float]:
        """What there is for all trials together, as `{"CPU": 8, "GPU": 1}`."""
        ...

    @property
    def epoch(self) -> int:
        """1, and one more with each restore, which may take up trials that had ended."""
        ...

    @property
    def has_queue(self) -> bool:
        """Whether trials wait for room."""

    @property
    def asking(self) -> bool:
        """Whether the search is thinking of another trial, for which there is room."""

    @property
    def is_complete(self) -> bool:
        """Whether it is known that the search has no further trial."""


class TrialScheduler(Described):
    """Base of schedulers. `decide` is pure: the same view and event give the same decisions.

    What it decides is journalled with the event that it decided upon. A decision that does not
    fit its trial (stop one that has ended, pause one that does not run, unpause one that is not
    paused) changes nothing.

    It may keep state of its own; the state is rebuilt on a restore by showing it the journal's
    events again, whatever it then answers, so it must depend on nothing else. After a failure or
    a restore a trial may report iterations again that it had reported before.

    `metric` and `mode` are those of the Tuner where they are None.
    """

    metric: str | None = None
    mode: str | None = None
    needs_checkpoints = False
    """Whether it lets trials go on from checkpoints, so that a trainable that cannot save makes
    no sense."""

    def begun(self, spec: ExperimentSpec) -> Self:
        """The one that decides for this experiment, and has seen nothing yet.

        Raises InvalidConfig for settings that do not fit it.
        """
        return copy.deepcopy(self)

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        """What to do about `event`: a sequence of decisions, empty for nothing.

        `view` shows the trials, the settings of the experiment and the resources of the machine.
        """
        raise NotImplementedError(f"{type(self).__name__} must define decide()")

    def answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call the user's own functions, for an AskUser. Changes nothing here; may block."""
        raise NotImplementedError(f"{type(self).__name__} asks, and must define answer()")


class FIFOScheduler(TrialScheduler):
    """Every trial runs to its end, in the order in which it was suggested."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        return ()


def scheduler_of(given: Any) -> TrialScheduler:
    """The one of a TuneConfig, FIFO where it has none. Raises InvalidConfig for what is none."""
    policy = FIFOScheduler() if given is None else given
    if not isinstance(policy, TrialScheduler):
        raise InvalidConfig(
            f"scheduler must be a TrialScheduler, as ASHAScheduler() or create_scheduler('asha') "
            f"makes one; not {policy!r:.100}"
        )
    check_overrides(policy)
    return policy


_NEVER_CALLED = (
    "on_trial_add",
    "on_trial_result",
    "on_trial_complete",
    "on_trial_error",
    "on_trial_remove",
    "choose_trial_to_run",
    "set_search_properties",
)


def check_overrides(policy: TrialScheduler) -> None:
    """Refuse methods that Ray calls and holdfast does not: what they decide would never happen.

    Raises InvalidConfig.
    """
    found = [name for name in _NEVER_CALLED if callable(getattr(policy, name, None))]
    if found:
        raise InvalidConfig(
            f"{type(policy).__name__} defines {', '.join(found)}, which holdfast never calls: "
            f"override decide(view, event), which gets TrialAdded, TrialReported and TrialEnded "
            f"and returns decisions such as StopTrial; read metric and mode in begun(spec)"
        )


def is_memoryless(policy: TrialScheduler | None) -> bool:
    """Whether it decides from the view alone, so that a snapshot will do in place of the events
    that another would have to be shown."""
    return policy is None or type(policy) is FIFOScheduler
