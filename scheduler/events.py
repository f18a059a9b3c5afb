"""The events of the experiment and its processes. The journal is a list of events.

`holdfast.trial.events` has the events of a single trial. Handling all events in order gives the
experiment's state. Events are plain frozen data, so reading a journal does not need the user's
code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from holdfast.dataclass import dataclass
from holdfast.errors import Remedy
from holdfast.names import shown
from holdfast.schema import (
    DEEPEST,
    Between,
    Count,
    Limit,
    Moment,
    Ordinal,
    PlainName,
    Sparse,
    Stored,
    check_plain,
)
from holdfast.trial.config import (
    PLANNED,
    CheckpointConfig,
    FailureConfig,
    Options,
    ResumeType,
    SpaceParts,
    StopBounds,
)
from holdfast.trial.errors import Failure, ProcessFailureKind
from holdfast.trial.events import (
    Adopted,
    Committed,
    ConstraintViolated,
    Measured,
    Reported,
    Returned,
    Saved,
    Started,
    Unread,
)
from holdfast.trial.metrics import Mode
from holdfast.trial.resources import Amounts, Bundles, NodeKind
from holdfast.trial.trial import TrialSpec
from holdfast.trial.values import Config

FORMAT = 3
"""The journal's format. No release has written an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSpec:
    """The settings of a run that the machine needs. It contains no path, host or credential.

    `run` is the five hexadecimal digits in each trial's id. `resources` are those of each trial;
    None if they depend on the trial's config. `scheduler` is the name of the scheduler's class.
    `saves_when_told`: trials save a checkpoint on request, as class trainables do. `space`
    describes the search space (`holdfast.trial.search_space.description.describe`). `options` are
    settings that only the shell reads, at a restore.

    With `fits_budget` no trial starts that would probably not end within the time budget.
    `confirm`: how often the best configs run again after the search.
    With `strict_kind`, a first report whose metric is not a number is a mistake, too.

    `timeout_s` is the limit of a TimeoutStopper, and `stop_metrics` are the metrics that stoppers
    read. `stop_number` and `space_number` count the changes that restores made to the stop
    condition and to the space; the current space applies to trials from number `space_from` on.
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
    fits_budget: Sparse[bool] = False
    confirm: Sparse[Count] = 0
    reuse_actors: bool = False
    stop: StopBounds = field(default_factory=dict)
    strict_stop: bool = False
    strict_kind: bool = False
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
    def whole_space(self) -> list[Mapping[str, Any]]:
        """The parts of `space`, and of a space that the search has of its own."""
        return [*self.space, *self.options.get("search_space", ())]

    @property
    def goals(self) -> Mapping[str, str]:
        """The metrics that a search or a scheduler optimizes together, each with its mode; empty
        unless there are several."""
        goals: Mapping[str, str] = self.options.get("goals", {})
        return goals

    def planned(self, total: int | None) -> ExperimentSpec:
        """These settings with the number of trials that the search will create, None for no limit:
        readers of the records cannot ask the search."""
        return replace(self, options={**self.options, PLANNED: total})

    @property
    def budget_s(self) -> float | None:
        """The seconds that the experiment may run, over all restores; None for no limit."""
        limits = (self.time_budget_s, self.timeout_s)
        return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The first record of an experiment.

    With an `offer`, trials run on the nodes that join; without one, on this machine, which has
    `capacity`.
    """

    spec: ExperimentSpec
    capacity: Amounts
    offer: Sequence[NodeKind] = ()
    boot_id: str = ""
    version: Annotated[int, Between(FORMAT, FORMAT)] = FORMAT


def _read_state(plain: Any) -> Any:
    if type(plain) is not dict:
        raise ValueError(f"must be a table of names and values, not {shown(plain)}")
    # The trials' configs begin three levels down.
    return check_plain(plain, "it", 2 * DEEPEST + 6)


MachineState = Annotated[Mapping[str, Any], Stored(_read_state)]
PlainTable = Annotated[Mapping[str, Any], Stored(_read_state)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """The first record of a journal whose earlier records are lost.

    `state` is a snapshot of the machine (`snapshot.snapshot`) without its spec. The earlier rows
    and the scheduler's earlier decisions are lost.
    """

    spec: ExperimentSpec
    state: MachineState


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A restore has resumed the experiment; `epoch` counts its incarnations from 1.

    With `strict=False`, metrics that no report has had so far are no longer errors. `resources`
    replace those of unfinished trials, `config` is that of all trials that run from now on (a
    trainer's experiment has one), and `spec` replaces the experiment's; None changes nothing.
    Nodes must join again; `offer` and `capacity` are as in Begun.
    """

    epoch: Count
    capacity: Amounts
    offer: Sequence[NodeKind] = ()
    unfinished: ResumeType = ResumeType.RESUME
    errored: ResumeType = ResumeType.SKIP
    finished: ResumeType = ResumeType.SKIP
    boot_id: str = ""
    strict: bool = True
    resources: Bundles | None = None
    spec: ExperimentSpec | None = None
    config: Sparse[Config | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The expectations of a search with a model: `best` is the metric of the best config so far,
    without its noise; `gain` is the mean improvement by the next trial. `is_little`: the gain is
    so small that the user may stop."""

    best: float
    gain: Limit
    is_little: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggested:
    """The search has suggested the next trial.

    `answer` is the search algorithm's own answer if it differs from the trial's config, which also
    has the fixed values of the search space. The algorithm had not yet seen the last `unheard`
    reports and ends before this record; a replay passes them to it later, too. `is_last`: the
    search is known to have no further trial. If the search is slow, `took_s` says how long it took
    for this one, and `look_ahead` is that of the algorithm (`Searcher.look_ahead`). `outlook` is
    that of an algorithm that has one.
    """

    spec: TrialSpec
    answer: Config | None = None
    unheard: Count = 0
    is_last: bool = False
    took_s: Sparse[Limit] = 0.0
    look_ahead: Sparse[Limit] = 0.0
    outlook: Sparse[Outlook | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedAhead:
    """The search has suggested a trial for which no worker is free yet: it becomes one with its
    own Suggested, which is a copy of this one."""

    suggestion: Suggested


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
    """A worker process has ended; its resources are free. `cause` names the signal or exit status.

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
    """The user's code has answered a scheduler's question (`policy.AskUser`)."""

    trial_id: str
    answer: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWaits:
    """The search suggests no further trial until a paused trial resumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLost:
    """A recorded checkpoint is missing or incomplete.

    `in_run`: this was found while the experiment runs, for instance because its node left before
    it was in storage. Otherwise a restore has found it, and nothing starts before its Resumed.
    """

    trial_id: str
    index: Ordinal
    reason: str
    in_run: bool = False


# What a person orders while the experiment runs. `by` names the person, and what they used: "ann
# (page)", "ann (command)".


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStopOrdered:
    """A person stops the trial. Its results count."""

    trial_id: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """A person pauses the trial until ResumeRequested.

    A running one gives up its worker at its next report with a checkpoint (a trainable that saves
    when told: at its next report); with `now`, at once.
    """

    trial_id: str
    by: str
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested:
    """A person resumes the trial that a person has paused."""

    trial_id: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChanged:
    """A person changes how many trials run at once; None for no limit. Running ones continue."""

    max_concurrent: Count | None
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesAdded:
    """A person raises `num_samples` by `count`. The search then makes `total` trials; None if that
    is not known."""

    count: Count
    by: str
    total: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigAdded:
    """A person adds a trial with these values, by name; the search space gives the others."""

    config: Config
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRefused:
    """The oldest added config made no trial: the user's code raised an error for it."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteWritten:
    """A person writes a note on the trial; "" removes it."""

    trial_id: str
    text: str
    by: str


Order = (
    TrialStopOrdered
    | PauseRequested
    | ResumeRequested
    | LimitChanged
    | SamplesAdded
    | ConfigAdded
    | NoteWritten
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined:
    """A node is there, and trials may run on it. No other node of the experiment has its name.

    `kind` is the name of its kind in the offer; "" if that has only one. `hostname` and `address`
    are for people.
    """

    node: PlainName
    resources: Amounts
    hostname: str = ""
    address: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeaving:
    """A node will go away in so many seconds: its trials save, and no other starts there."""

    node: PlainName
    seconds: Limit = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeft:
    """A node is gone. The ends of its workers follow."""

    node: PlainName
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSettled:
    """What has not joined by now counts as absent: `missing` says what that is, "" if it is not
    known. Nodes that join later are used all the same."""

    missing: str = ""


ResumableReason = Literal["interrupt", "preempted", "abort", "fail_fast", "errored"]
"""The reasons for an end after which unfinished trials can be resumed.

"preempted": trials may save first. "errored": more trials have failed than allowed.
"""

EndReason = Literal["budget", "stopper", ResumableReason]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOrdered:
    """The experiment must stop. After "budget" and "stopper" its trials count as finished."""

    reason: EndReason
    message: str = ""
    remedy: Sparse[Remedy | None] = None


Event = (
    Begun
    | Recalled
    | Resumed
    | Suggested
    | SuggestedAhead
    | SearchEnded
    | SearchWaits
    | Started
    | Adopted
    | Reported
    | Saved
    | Returned
    | Measured
    | ConstraintViolated
    | Unread
    | Raised
    | Exited
    | WaitEnded
    | StopperAnswered
    | SchedulerAnswered
    | CheckpointLost
    | Committed
    | EndOrdered
    | NodeJoined
    | NodeLeaving
    | NodeLeft
    | NodesSettled
    | TrialStopOrdered
    | PauseRequested
    | ResumeRequested
    | LimitChanged
    | SamplesAdded
    | ConfigAdded
    | ConfigRefused
    | NoteWritten
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that happened to the experiment, for people.

    `name` is that of its event and `facts` are the event's plain fields, or those that matter.
    `since` is the time of the record before it, `epoch` the incarnation of the experiment.
    """

    name: str
    at: Moment
    since: Moment
    epoch: Count
    facts: PlainTable


HAPPENINGS = frozenset(
    {
        Begun,
        Recalled,
        Resumed,
        EndOrdered,
        NodeJoined,
        NodeLeaving,
        NodeLeft,
        NodesSettled,
        ConfigRefused,
    }
)
"""The events that become a Happening, besides the orders that apply."""
