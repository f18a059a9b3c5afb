"""What happens: the journal is a list of these, and a fold over them is the experiment.

Events of one trial's life stand in `holdfast.trial.events`; here are those of the experiment
and of the processes. All are plain frozen data, so that the journal can be read without the
user's code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Literal

from holdfast.dataclass import dataclass
from holdfast.names import shown
from holdfast.trial.bounds import Between, Count, Limit, Ordinal, Stored
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.encoding import Config
from holdfast.trial.errors import Failure, ProcessFailureKind
from holdfast.trial.events import Adopted, Committed, Reported, Returned, Saved, Started
from holdfast.trial.nesting import DEEPEST
from holdfast.trial.options import Options, SpaceParts, StopBounds
from holdfast.trial.plain import check_plain
from holdfast.trial.resources import Amounts, Bundles
from holdfast.trial.trial import TrialSpec
from holdfast.trial.tuning import Mode, ResumeType

FORMAT = 2
"""In a journal of format 1 the scheduler's decisions do not stand beside the events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSpec:
    """What the machine must know of a run. Nothing here names a path, a host or a credential.

    `run` are the five hexadecimal digits in each trial's id. `resources` is what a trial asks for,
    None where it depends on the trial's config. `scheduler` is the class that decides;
    `saves_when_told` says that trials can be made to save themselves. `space` describes the search
    space (see `holdfast.trial.search_space.description.describe`), `options` is what the shell
    wants to know on a restore.

    `timeout_s` is a stopper's, `stop_metrics` are what stoppers look at. `stop_number` and
    `space_number` count how often restores have changed the stop condition and the space; trials
    from number `space_from` on are of the present one.
    """

    experiment_id: str
    run: str
    trainable: str
    seed: int
    metric: str | None = None
    mode: Mode | None = None
    strict_metric: bool = True
    num_samples: int = 1
    max_concurrent: int | None = None
    time_budget_s: Limit | None = None
    reuse_actors: bool = False
    stop: StopBounds = field(default_factory=dict)
    strict_stop: bool = False
    has_stopper: bool = False
    scheduler: str = ""
    saves_when_told: bool = False
    timeout_s: Limit | None = None
    stop_metrics: Sequence[str] = ()
    stop_number: Ordinal = 0
    space_number: Ordinal = 0
    space_from: Count = 0
    resources: Bundles | None = None
    failure: FailureConfig = field(default_factory=FailureConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    space: SpaceParts = ()
    options: Options = field(default_factory=dict)

    @property
    def budget_s(self) -> float | None:
        """The seconds that the experiment may be alive, None for no limit."""
        limits = (self.time_budget_s, self.timeout_s)
        return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The first record of an experiment."""

    spec: ExperimentSpec
    capacity: Amounts
    boot_id: str = ""
    version: Annotated[int, Between(1, FORMAT)] = FORMAT


def _read_state(plain: Any) -> Any:
    if type(plain) is not dict:
        raise ValueError(f"must be a table of names and values, not {shown(plain)}")
    # The configs of trials are three levels down.
    return check_plain(plain, "it", 2 * DEEPEST + 6)


MachineState = Annotated[Mapping[str, Any], Stored(_read_state)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """The first record of an experiment whose first records are lost: what was known of it then.

    `state` is the machine as a snapshot has it (`snapshot.snapshot`), without its spec. The rows
    that led there stand in no record any more; nor do the decisions of a scheduler with a state.
    """

    spec: ExperimentSpec
    state: MachineState


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A restore took the experiment up; `epoch` counts incarnations from 1.

    Unless `strict`, names that no report has held so far are no mistake any more. `resources` are
    what unfinished trials ask for from now on; None leaves them theirs. `spec` is what the
    experiment is from now on, None where it stays what it was.

    By the `rules` of 1, that of the first versions, a finished trial that is to resume without a
    checkpoint began from scratch, and a run that its stopper had ended went on.
    """

    epoch: Count
    capacity: Amounts
    unfinished: ResumeType = ResumeType.RESUME
    errored: ResumeType = ResumeType.SKIP
    finished: ResumeType = ResumeType.SKIP
    boot_id: str = ""
    strict: bool = True
    resources: Bundles | None = None
    spec: ExperimentSpec | None = None
    rules: Count = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggested:
    """The search answered with the next trial.

    `answer` is what a search algorithm has answered, where that is not the whole of the trial's
    config: the fixed values of the search space stand in the config too. When it was asked, it
    had not been told the last `unheard` of the reports and ends that stand before this record.
    `is_last`: it is known already that the search has no further one.
    """

    spec: TrialSpec
    answer: Config | None = None
    unheard: Count = 0
    is_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnded:
    """The search has no further trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An attempt ended with an error: in user code, or before it could be called."""

    trial_id: str
    attempt: Count
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A worker process is gone and what it held is free. `cause` names signal or status.

    `kind` is the kind of the failure, unless the attempt had already ended.
    """

    trial_id: str
    attempt: Count
    cause: str
    kind: ProcessFailureKind = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEnded:
    """A trial that has failed in this attempt may start again."""

    trial_id: str
    attempt: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class StopperAnswered:
    """The user's stop function has seen the trial's newest report."""

    trial_id: str
    attempt: Count
    iteration: Count
    stop: bool
    stop_all: bool = False
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerAnswered:
    """The user's code that a scheduler had asked for has answered (`policy.AskUser`)."""

    trial_id: str
    answer: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWaits:
    """The search has no further trial before a paused one has gone on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLost:
    """A restore found that a recorded checkpoint is not there, or not whole."""

    trial_id: str
    index: Ordinal
    reason: str


ResumableReason = Literal["interrupt", "preempted", "abort", "fail_fast", "errored"]
"""Why an experiment stops whose unfinished trials can be resumed.

"preempted" gives them time to save first; "errored": too many have failed.
"""

EndReason = Literal["budget", "stopper", ResumableReason]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOrdered:
    """The whole experiment must stop. After "budget" and "stopper" its trials are finished."""

    reason: EndReason
    message: str = ""


Event = (
    Begun
    | Recalled
    | Resumed
    | Suggested
    | SearchEnded
    | SearchWaits
    | Started
    | Adopted
    | Reported
    | Saved
    | Returned
    | Raised
    | Exited
    | WaitEnded
    | StopperAnswered
    | SchedulerAnswered
    | CheckpointLost
    | Committed
    | EndOrdered
)
