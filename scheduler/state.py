"""The state of the machine: all trials, the resources they hold, and the experiment's progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from holdfast.names import shown
from holdfast.scheduler.events import ConfigAdded, EndOrdered, ExperimentSpec, Suggested
from holdfast.scheduler.expected import Expected
from holdfast.scheduler.kept import Kept, NotKept, Rare, TrialId
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.scheduler.placement import Placement
from holdfast.scheduler.policy import Decision, Observation, TrialScheduler, is_memoryless
from holdfast.schema import Count, Moment, Stored, UnreadableRecord, to_fields
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.encoding import Config
from holdfast.trial.events import TrialEvent, Unpaused
from holdfast.trial.lifecycle import advance
from holdfast.trial.trial import Status, Trial

_MAKES_ROOM = frozenset({Status.PAUSED, Status.TERMINATED, Status.ERROR})


def _plain_trials(trials: Mapping[str, Trial]) -> list[dict[str, Any]]:
    return [to_fields(trial) for trial in trials.values()]


class State:
    """Only functions of this package change it, while the machine handles an event."""

    policy: NotKept[TrialScheduler | None]
    spec: ExperimentSpec
    trials: Annotated[dict[str, Trial], Stored(tuple, _plain_trials, Sequence[Trial])]
    # The trials' folder names: two trials in one folder would overwrite each other's files.
    folders: NotKept[set[str]]
    placement: Placement
    expected: Expected
    epoch: Count
    boot_id: str
    ending: EndOrdered | None
    finished: bool
    search_ended: bool
    # No trial will be added. The search may announce this with its last trial.
    is_complete: Rare[bool]
    active_s: float
    # Elastic trials that have lost a bundle; it counts as gone until a node joins, or for a while.
    shrunk: Rare[set[TrialId]]
    # Paused trials that resume as soon as their workers have ended.
    resume_when_free: Annotated[set[TrialId], Kept(name="returning", rare=True)]
    # Questions that the user's code has not answered yet, by the trial that they concern.
    questions: Rare[dict[TrialId, Config]]
    # Attempts whose report waits for an answer of the user's code, by trial.
    deferred_replies: Annotated[dict[TrialId, Count], Kept(name="withheld", rare=True)]
    # Attempts that will save a checkpoint with the answer to their next report, by trial.
    saving: Rare[dict[TrialId, Count]]
    # Trials that will start from a copy of another trial's checkpoint. `add` and `move` keep this
    # index by that trial: each commit needs it (11 µs), and a scan of 10,000 trials takes 1.1 ms.
    clones: NotKept[dict[str, set[str]]]
    errored_before: Rare[Count]
    # The user knows that trials which are paused without a checkpoint restart from scratch.
    has_told_restarts: Rare[bool]
    # `Trial.rungs` has all rungs that the scheduler has noted since the experiment began.
    has_all_rungs: Rare[bool]
    asking: bool
    # What the search has suggested before a worker is free for it, the next one first.
    ahead: Rare[tuple[Suggested, ...]]
    # It is asked for one more of these.
    asking_ahead: Rare[bool]
    # How long a slow search takes for a suggestion, the newest counting most.
    suggestion_s: Rare[float]
    # How many trials it may suggest ahead, as a share of those that run.
    look_ahead: Rare[float]
    # The search suggests nothing until a paused trial resumes. When another trial pauses or ends,
    # it is asked again, because its answer may change.
    search_waits: Rare[bool]
    # The configs that a person has added, and that are not trials yet, the oldest first.
    configs: Rare[tuple[ConfigAdded, ...]]
    # The oldest of them is being made a trial.
    asking_config: Rare[bool]
    now: Moment
    # The format of the journal that this state was read from.
    # The trials that the newest event has changed, as they were before it.
    moved: NotKept[dict[str, Trial]]
    # The policy's decisions on the newest event, one list per observation.
    answers: NotKept[list[Sequence[Decision]]]
    # During a replay: the decisions that the journal has for the event.
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
        self.resume_when_free, self.clones = set(), {}
        self.questions, self.deferred_replies, self.saving = {}, {}, {}
        self.shrunk = set()
        self.errored_before = 0
        self.has_told_restarts = self.has_all_rungs = False
        self.asking = self.search_waits = self.asking_ahead = False
        self.ahead = ()
        self.suggestion_s = self.look_ahead = 0.0
        self.configs, self.asking_config = (), False
        self.moved, self.answers, self._recorded = {}, [], None

    def begin_with(self, trials: Iterable[Trial]) -> None:
        """Replace all trials. Readers of a journal keep a reference to `trials`, so this changes
        the dict in place. Raises UnreadableRecord."""
        for several in (self.trials, self.folders, self.clones):
            several.clear()
        for trial in trials:
            self.add(trial)

    @property
    def has_nothing(self) -> bool:
        """Whether a restore has nothing to continue from: no trial has reported or terminated, the
        first report lacked a metric that the settings name, or a mistake in the settings ended the
        run before a trial had a checkpoint or terminated."""
        trials = self.trials.values()
        if not self.expected.is_met:
            return True
        if any(trial.checkpoints or trial.status is Status.TERMINATED for trial in trials):
            return False
        is_mistake = self.ending is not None and self.ending.reason == "abort"
        return is_mistake or all(trial.row is None for trial in trials)

    @property
    def total_resources(self) -> Mapping[str, float]:
        """The resources of the machine, or of all nodes that are there. All trials share them."""
        return self.placement.total

    @property
    def cluster(self) -> Cluster:
        """The nodes that trials run on; none if they run on this machine."""
        return self.placement.cluster

    @property
    def paused(self) -> list[str]:
        """The ids of the paused trials, sorted. Scans all trials."""
        return sorted(t.trial_id for t in self.trials.values() if t.status is Status.PAUSED)

    @property
    def held(self) -> list[str]:
        """The ids of the trials that wait for a person to resume them, sorted."""
        return sorted(self.placement.held)

    @property
    def waits_for_person(self) -> bool:
        """Whether only trials are left that a person has paused."""
        if not self.placement.held or self.placement.has_trials or self.questions:
            return False
        is_over = self.ending is not None or self.finished
        has_more = self.configs or not (self.search_ended or self.search_waits) or self.paused
        return not (is_over or has_more)

    @property
    def errored(self) -> int:
        """The number of trials with the status ERROR."""
        return sum(trial.status is Status.ERROR for trial in self.trials.values())

    @property
    def has_queue(self) -> bool:
        """Whether trials wait for resources."""
        return bool(self.placement.queue)

    def add(self, trial: Trial) -> None:
        """Add a trial. Raises UnreadableRecord if another one has its id or its folder."""
        spec = trial.spec
        if spec.trial_id in self.trials or spec.dirname in self.folders:
            raise UnreadableRecord(
                f"there are two trials {shown(spec.trial_id)}, or of the folder "
                f"{shown(spec.dirname)}"
            )
        self.trials[spec.trial_id] = trial
        self.folders.add(spec.dirname)
        self._index_clone(None, trial)

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
            self._index_clone(before, trial)
        if self.policy is not None:
            self.policy.follow(before, trial)
        return trial

    def _index_clone(self, before: Trial | None, trial: Trial) -> None:
        if before is not None and before.origin is not None and before.awaits_copy:
            clones = self.clones[before.origin.trial_id]
            clones.discard(trial.trial_id)
            if not clones:
                del self.clones[before.origin.trial_id]
        if trial.origin is not None and trial.awaits_copy:
            self.clones.setdefault(trial.origin.trial_id, set()).add(trial.trial_id)

    def expect_more(self) -> None:
        """The search makes more trials than it was known to."""
        self.search_ended = self.is_complete = False
        self.ahead = tuple([replace(one, is_last=False) for one in self.ahead])

    def is_current(self, trial_id: str, attempt: int) -> bool:
        """Whether this attempt of the trial is running; events of earlier ones are ignored."""
        trial = self.trials[trial_id]
        return trial.attempt == attempt and trial.status.has_worker

    def enqueue(self, trial_id: str) -> None:
        """Queue a pending trial for resources, unless its last worker is still busy or a question
        about it waits for the user's code. A trial that a person has paused waits for them."""
        trial = self.trials[trial_id]
        if trial.status is not Status.PENDING or trial_id in self.questions:
            return
        if trial.is_held:
            self.placement.hold(trial_id)
        else:
            self.placement.wait(trial_id, is_answered=not self.awaits_answer(trial))

    def awaits_answer(self, trial: Trial) -> bool:
        """Whether its node took the checkpoint with it that the trial would resume from, and it is
        not known yet whether that is in storage."""
        checkpoint = self._resumes_from(trial)
        if checkpoint is None or checkpoint.committed:
            return False
        return checkpoint.node in self.cluster.former

    def node_of_checkpoint(self, trial: Trial) -> str:
        """The node with the checkpoint that the trial would resume from; "" if none has it."""
        checkpoint = self._resumes_from(trial)
        return "" if checkpoint is None else checkpoint.node

    def _resumes_from(self, trial: Trial) -> CheckpointRecord | None:
        """The newest record of the checkpoint that the trial would resume from."""
        if (origin := trial.origin) is None:
            return trial.newest_checkpoint
        key = (origin.checkpoint.index, origin.checkpoint.attempt)
        known = self.trials[origin.trial_id].checkpoints
        return next((one for one in known if (one.index, one.attempt) == key), None)

    def ask_again(self, trial_ids: Iterable[str]) -> bool:
        """Sort waiting trials by whether the checkpoint they resume from is known to be in
        storage. Returns whether any may start now that could not."""
        released = False
        placement = self.placement
        for trial_id in trial_ids:
            awaits = self.awaits_answer(self.trials[trial_id])
            if trial_id in placement.queue and awaits:
                placement.hold_back(trial_id)
                placement.unanswered.add(trial_id)
            elif trial_id in placement.unanswered and not awaits:
                placement.unanswered.discard(trial_id)
                self.enqueue(trial_id)
                released = True
        return released

    def consult(self, observation: Observation) -> Sequence[Decision]:
        """Return the policy's decisions; during a replay, those that the journal has."""
        decided: Sequence[Decision] = ()
        if self.policy is not None:
            decided = tuple(self.policy.decide(self, observation))
        if self._recorded is not None:
            decided = next(self._recorded, ())
        self.answers.append(decided)
        return decided

    def unpause(self, trial_id: str) -> None:
        """Resume a paused trial, once its worker has saved and ended."""
        if self.trials[trial_id].status is not Status.PAUSED:
            return
        if trial_id in self.placement.holds:
            self.resume_when_free.add(trial_id)
            return
        self.move(Unpaused(trial_id=trial_id))
        self.enqueue(trial_id)

    def freed(self, trial_id: str) -> None:
        """Called when the trial's worker has ended or is idle."""
        if trial_id in self.resume_when_free:
            self.unpause(trial_id)
        self.enqueue(trial_id)

    def needed_of(self, trial_id: str) -> set[int]:
        """The trial's checkpoints that clones will start from."""
        origins = [self.trials[clone].origin for clone in self.clones.get(trial_id, ())]
        return {origin.checkpoint.index for origin in origins if origin is not None}

    def kept_of(self, trial_id: str) -> set[int]:
        """The checkpoints that must be kept: the trial's own, and those that clones will start
        from, which may be of an earlier start of the trial."""
        return {known.index for known in self.trials[trial_id].checkpoints} | self.needed_of(
            trial_id
        )


def row_of(trial: Trial) -> dict[str, Any]:
    """The trial's newest report, as stop conditions and policies see it.

    As in the trial's files, the user's metrics replace automatic ones of the same name, except
    the iteration and the id.
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
