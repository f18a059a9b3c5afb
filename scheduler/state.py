"""What the machine knows: every trial, who holds what, and how far the experiment has come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from holdfast.names import shown
from holdfast.scheduler.events import FORMAT, EndOrdered, ExperimentSpec
from holdfast.scheduler.expected import Expected
from holdfast.scheduler.kept import Kept, NotKept, Rare, TrialId
from holdfast.scheduler.placement import Placement
from holdfast.scheduler.policy import Decision, Observation, TrialScheduler, is_memoryless
from holdfast.trial.bounds import Count, Moment, Stored
from holdfast.trial.encoding import Config
from holdfast.trial.errors import UnreadableRecord
from holdfast.trial.events import TrialEvent, Unpaused
from holdfast.trial.fields import to_fields
from holdfast.trial.lifecycle import advance
from holdfast.trial.trial import Status, Trial

_MAKES_ROOM = frozenset({Status.PAUSED, Status.TERMINATED, Status.ERROR})


def _plain_trials(trials: Mapping[str, Trial]) -> list[dict[str, Any]]:
    return [to_fields(trial) for trial in trials.values()]


class State:
    """Changed by the functions of this package alone, while the machine handles an event."""

    policy: NotKept[TrialScheduler | None]
    spec: ExperimentSpec
    trials: Annotated[dict[str, Trial], Stored(tuple, _plain_trials, Sequence[Trial])]
    # The trials' folders: two of one name would overwrite each other's files.
    folders: NotKept[set[str]]
    placement: Placement
    expected: Expected
    epoch: Count
    boot_id: str
    ending: EndOrdered | None
    finished: bool
    search_ended: bool
    # No trial will be added: sometimes the search says so with its last one.
    is_complete: Rare[bool]
    active_s: float
    # Trials that are paused only until their workers have ended.
    resume_when_free: Annotated[set[TrialId], Kept(name="returning", rare=True)]
    # What the user's code was asked, by the trial that the question is about.
    questions: Rare[dict[TrialId, Config]]
    # Attempts whose report is answered once the user's code has answered, by trial.
    deferred_replies: Annotated[dict[TrialId, Count], Kept(name="withheld", rare=True)]
    # Attempts that save a checkpoint when their next report is answered, by trial.
    saving: Rare[dict[TrialId, Count]]
    # Trials that will start from a copy of another trial's checkpoint. `add` and `move` keep this
    # index: each commit needs it (11 µs), and a scan of 10,000 trials takes 1.1 ms.
    clones: NotKept[set[str]]
    errored_before: Rare[Count]
    asking: bool
    # The search wants to see paused trials resume first. When another trial pauses or ends it may
    # think otherwise, and is asked again.
    search_waits: Rare[bool]
    now: Moment
    # The format of the journal that is read.
    version: NotKept[int]
    # Each trial that the newest event has moved, as it was before: mostly that of the event.
    moved: NotKept[dict[str, Trial]]
    # What the policy has decided in the newest event, observation by observation.
    answers: NotKept[list[Sequence[Decision]]]
    # What it had decided then, where the event is read from a journal.
    _recorded: NotKept[Iterator[Sequence[Decision]] | None]

    def __init__(self, policy: TrialScheduler | None = None) -> None:
        self.policy = None if is_memoryless(policy) else policy
        self.spec = ExperimentSpec(experiment_id="", run="", trainable="", seed=0)
        self.trials, self.folders = {}, set()
        self.placement = Placement({})
        self.expected = Expected(self.spec)
        self.epoch, self.boot_id = 1, ""
        self.ending, self.finished = None, False
        self.search_ended = self.is_complete = False
        self.now = self.active_s = 0.0
        self.resume_when_free, self.clones = set(), set()
        self.questions, self.deferred_replies, self.saving = {}, {}, {}
        self.errored_before = 0
        self.asking = self.search_waits = False
        self.version = FORMAT
        self.moved, self.answers, self._recorded = {}, [], None

    def begin_with(self, trials: Iterable[Trial]) -> None:
        """Have these trials instead. Readers of a journal hold on to `trials`: it stays the same
        dict. Raises UnreadableRecord."""
        for several in (self.trials, self.folders, self.clones):
            several.clear()
        for trial in trials:
            self.add(trial)

    @property
    def has_nothing(self) -> bool:
        """Whether a restore has nothing to go on from: nothing was reported, and nothing ended
        well, or the first report was not what the settings name."""
        return not self.expected.is_met or not any(
            trial.row is not None or trial.checkpoints or trial.status is Status.TERMINATED
            for trial in self.trials.values()
        )

    @property
    def total_resources(self) -> Mapping[str, float]:
        """What there is for all trials together."""
        return self.placement.capacity.total

    @property
    def paused(self) -> list[str]:
        """The paused trials, in the order of their ids. Scans all trials."""
        return sorted(t.trial_id for t in self.trials.values() if t.status is Status.PAUSED)

    @property
    def errored(self) -> int:
        """How many trials have failed for good."""
        return sum(trial.status is Status.ERROR for trial in self.trials.values())

    @property
    def has_queue(self) -> bool:
        """Whether trials wait for room."""
        return bool(self.placement.queue)

    def add(self, trial: Trial) -> None:
        """Take in a trial. Raises UnreadableRecord for one that is there, or has its folder."""
        spec = trial.spec
        if spec.trial_id in self.trials or spec.dirname in self.folders:
            raise UnreadableRecord(
                f"there are two trials {shown(spec.trial_id)}, or of the folder "
                f"{shown(spec.dirname)}"
            )
        self.trials[spec.trial_id] = trial
        self.folders.add(spec.dirname)
        if trial.awaits_copy:
            self.clones.add(spec.trial_id)

    def move(self, event: TrialEvent) -> Trial:
        before = self.trials[event.trial_id]
        self.moved.setdefault(event.trial_id, before)
        trial = self.trials[event.trial_id] = advance(before, event)
        if trial.status is not before.status:
            if trial.status in _MAKES_ROOM:
                self.search_waits = False
            if before.status is Status.PAUSED:
                self.resume_when_free.discard(event.trial_id)
        if trial.origin is not None or before.origin is not None:
            (self.clones.add if trial.awaits_copy else self.clones.discard)(event.trial_id)
        return trial

    def is_current(self, trial_id: str, attempt: int) -> bool:
        """False for what an attempt says that was given up already."""
        trial = self.trials[trial_id]
        return trial.attempt == attempt and trial.status.has_worker

    def enqueue(self, trial_id: str) -> None:
        """Let a pending trial wait for resources, once its last worker is gone or idle, and the
        user's code has answered what it was asked about the trial."""
        if self.trials[trial_id].status is Status.PENDING and trial_id not in self.questions:
            self.placement.wait(trial_id)

    def consult(self, observation: Observation) -> Sequence[Decision]:
        """What the policy decides; of an event from a journal, what it had decided."""
        decided: Sequence[Decision] = ()
        if self.policy is not None:
            decided = tuple(self.policy.decide(self, observation))
        if self._recorded is not None:
            decided = next(self._recorded, ())
        self.answers.append(decided)
        return decided

    def unpause(self, trial_id: str) -> None:
        """Let a paused trial go on, once its worker has saved what it has and is gone."""
        if self.trials[trial_id].status is not Status.PAUSED:
            return
        if trial_id in self.placement.holds:
            self.resume_when_free.add(trial_id)
            return
        self.move(Unpaused(trial_id=trial_id))
        self.enqueue(trial_id)

    def freed(self, trial_id: str) -> None:
        """The trial's worker is gone, or idle."""
        if trial_id in self.resume_when_free:
            self.unpause(trial_id)
        self.enqueue(trial_id)

    def needed_of(self, trial_id: str) -> set[int]:
        """The trial's checkpoints that clones are to begin from."""
        origins = [self.trials[clone].origin for clone in self.clones]
        return {
            origin.checkpoint.index for origin in origins if origin and origin.trial_id == trial_id
        }

    def kept_of(self, trial_id: str) -> set[int]:
        """The trial's checkpoints that are to stay; one that has begun anew may have others than
        its own, which clones are still to begin from."""
        return {known.index for known in self.trials[trial_id].checkpoints} | self.needed_of(
            trial_id
        )


def row_of(trial: Trial) -> dict[str, Any]:
    """The trial's newest report, as stop conditions and policies see it.

    As in the trial's files, a metric of the user's wins over a count of ours, but for the
    iteration and the id.
    """
    return {
        "time_this_iter_s": trial.time_this_iter_s,
        "time_total_s": trial.time_total_s,
        "timestamp": int(trial.reported_at),
        "iterations_since_restore": trial.iteration - trial.resumed_from,
        "time_since_restore": trial.time_total_s - trial.time_at_start_s,
        **(trial.row or {}),
        "training_iteration": trial.iteration,
        "trial_id": trial.trial_id,
    }
