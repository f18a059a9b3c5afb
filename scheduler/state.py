"""The state of the machine: all trials, the resources they hold, and the experiment's progress.

`Expected` checks that the first report has the metrics that settings name, and `superseded`
decides which checkpoints may be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from holdfast.names import shown
from holdfast.plain_numbers import finite_number, is_number
from holdfast.scheduler.confirming import fresh_runs
from holdfast.scheduler.events import (
    Begun,
    ConfigAdded,
    EndOrdered,
    Event,
    ExperimentSpec,
    Happening,
    Outlook,
    PauseRequested,
    Recalled,
    Resumed,
    Suggested,
)
from holdfast.scheduler.kept import Kept, NotKept, Rare, TrialId
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.scheduler.placement import Placement, WaitsFor
from holdfast.scheduler.policy import Decision, Observation, TrialScheduler, is_memoryless
from holdfast.schema import Count, Moment, Stored, UnreadableRecord, to_fields
from holdfast.trial.config import PLANNED, CheckpointConfig
from holdfast.trial.events import TrialEvent, Unpaused
from holdfast.trial.lifecycle import advance, dated
from holdfast.trial.metrics import absent_from_first_report, has_metric, lookup, unscored
from holdfast.trial.trial import CheckpointRecord, Status, Trial
from holdfast.trial.values import Config


class Expected:
    """The metrics that no report has had yet; `bounds` are the names in `RunConfig(stop=...)`."""

    metric_seen: bool
    bounds: Annotated[tuple[str, ...], Kept(name="bounds_unseen", rare=True)]
    score_checked: bool
    _metric: NotKept[str | None]
    _strict_kind: NotKept[bool]
    _score: NotKept[str | None]
    _stop: NotKept[Mapping[str, float]]

    def __init__(
        self,
        spec: ExperimentSpec,
        *,
        metric_seen: bool = False,
        bounds: tuple[str, ...] | None = None,
        score_checked: bool = False,
    ) -> None:
        self._metric = spec.metric if spec.strict_metric else None
        self._strict_kind = spec.strict_kind
        self._score = spec.checkpoint.checkpoint_score_attribute
        self.metric_seen = metric_seen or self._metric is None
        self.score_checked = score_checked or self._score is None
        if bounds is None:
            bounds = (*spec.stop, *spec.stop_metrics) if spec.strict_stop else ()
        self.bounds = bounds
        self._stop = spec.stop

    @property
    def is_met(self) -> bool:
        return self.metric_seen and not self.bounds

    @property
    def unseen(self) -> dict[str, str]:
        """The settings whose metric no report has had so far, each with that metric."""
        bounds = {self._setting(name): name for name in self.bounds}
        if self.metric_seen or self._metric is None:
            return bounds
        return {f"TuneConfig(metric={self._metric!r})": self._metric, **bounds}

    @property
    def lacks_only_stoppers(self) -> bool:
        return self.metric_seen and not any(name in self._stop for name in self.bounds)

    def _setting(self, name: str) -> str:
        if name in self._stop:
            return f"RunConfig(stop={{{name!r}: ...}})"
        return f"RunConfig(stop=...Stopper(metric={name!r}))"

    def changed(self, old: ExperimentSpec, new: ExperimentSpec, *, has_rows: bool) -> Expected:
        """The expectations after the settings have changed. New names were looked up in any
        rows."""
        known = (*old.stop, *old.stop_metrics)
        bounds = [name for name in (*new.stop, *new.stop_metrics) if name in self.bounds]
        if new.strict_stop and not has_rows:
            bounds += [name for name in (*new.stop, *new.stop_metrics) if name not in known]
        return Expected(
            new,
            metric_seen=self.metric_seen,
            bounds=tuple(bounds),
            score_checked=self.score_checked,
        )

    def forgive(self) -> None:
        """Stop treating missing metrics as mistakes."""
        self.metric_seen, self.bounds = True, ()

    def fault_in(self, row: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
        """The error for a report that lacks a metric that no earlier one had; "" if there is none.

        `row` has the automatic metrics in addition to `metrics`, which are the user's.
        """
        if self._metric is not None and not self.metric_seen:
            value = lookup(row, self._metric)
            fits = is_number(value) or not self._strict_kind
            self.metric_seen = value is not None and fits
        self.bounds = tuple(name for name in self.bounds if not has_metric(row, name))
        return "" if self.is_met else absent_from_first_report(self.unseen, row, metrics)

    def doubt_of_score(self, row: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
        """A warning about the first report with a checkpoint; "" if there is none."""
        if self.score_checked or self._score is None:
            return ""
        self.score_checked = True
        return unscored(self._score, row, metrics)


def score_of(row: Mapping[str, Any], attribute: str | None) -> float | None:
    """The value that ranks a checkpoint; None if it is missing, not finite or not a number.

    An infinite value has overflowed or diverged: as the best one it could never be beaten.
    """
    value = lookup(row, attribute) if attribute else None
    return finite_number(value)


def ranked(
    checkpoints: Sequence[CheckpointRecord], config: CheckpointConfig
) -> list[CheckpointRecord]:
    """Best first; checkpoints without a score last; ties go to the newer one."""
    sign = -1.0 if config.checkpoint_score_order == "min" else 1.0

    def key(checkpoint: CheckpointRecord) -> tuple[bool, float, int]:
        score = checkpoint.score
        return (score is not None, sign * (score or 0.0), checkpoint.index)

    return sorted(checkpoints, key=key, reverse=True)


def superseded(
    checkpoints: Sequence[CheckpointRecord],
    config: CheckpointConfig,
    *,
    needed: Collection[int] = (),
) -> list[CheckpointRecord]:
    """The committed checkpoints that may be deleted: not the newest, and not the best
    `num_to_keep`.

    `checkpoints` are in the order of their reports. The checkpoint that the running attempt
    started from is the newest until the attempt has committed one, so it stays until then.
    Checkpoints whose indices are `needed`, for example by a trial that will start from one, stay
    as well and do not count among those to keep. Without a score attribute every score is None and
    only age decides.
    """
    if config.num_to_keep is None or len(checkpoints) <= config.num_to_keep:
        return []
    committed = [checkpoint for checkpoint in checkpoints if checkpoint.committed]
    if len(committed) <= config.num_to_keep:
        return []
    by_age = config.checkpoint_score_attribute is None
    best = committed[::-1] if by_age else ranked(committed, config)
    kept = {committed[-1].index, *needed}
    kept |= {checkpoint.index for checkpoint in best[: config.num_to_keep]}
    # Another machine cannot read a checkpoint that was not uploaded: keep the newest that was.
    uploaded = [known for known in committed if not known.stays_here]
    if uploaded:
        kept.add(uploaded[-1].index)
    return [checkpoint for checkpoint in committed if checkpoint.index not in kept]


_MOST_HAPPENINGS = 500
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
    has_warned_of_restarts: Annotated[bool, Kept(name="has_told_restarts", rare=True)]
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
    # The newest expectations of a search with a model.
    outlook: Rare[Outlook | None]
    # The search suggests nothing until a paused trial resumes. When another trial pauses or ends,
    # it is asked again, because its answer may change.
    search_waits: Rare[bool]
    # The configs that a person has added, and that are not trials yet, the oldest first.
    configs: Rare[tuple[ConfigAdded, ...]]
    # The oldest of them, or a fresh run of an earlier config, is being made a trial.
    asking_config: Rare[bool]
    # The search is over, and its best configs run again.
    confirming: Rare[bool]
    now: Moment
    # What happened to the experiment, for people: the newest 500.
    happened: Rare[tuple[Happening, ...]]
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
        self.has_warned_of_restarts = self.has_all_rungs = False
        self.asking = self.search_waits = self.asking_ahead = False
        self.ahead = ()
        self.suggestion_s = self.look_ahead = 0.0
        self.outlook = None
        self.configs, self.asking_config, self.confirming = (), False, False
        self.happened = ()
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
        return self.placement.held

    @property
    def waits_for_person(self) -> bool:
        """True if only trials are left that a person has paused."""
        if not self.placement.held or self.placement.has_trials or self.questions:
            return False
        is_over = self.ending is not None or self.finished
        has_more = self.configs or not (self.search_ended or self.search_waits) or self.paused
        return not (is_over or has_more)

    @property
    def made_by_search(self) -> int:
        """The number of trials without those that a person has added, and without fresh runs."""
        return sum(not trial.spec.is_added for trial in self.trials.values())

    @property
    def not_created(self) -> int | None:
        """The number of trials that the search has yet to create; None if the records do not
        say."""
        if self.search_ended:
            return 0
        total = self.spec.options.get(PLANNED)
        return max(0, total - self.made_by_search) if type(total) is int else None

    @property
    def has_rest(self) -> bool:
        """True if a plain restore has trials to finish or to create."""
        is_final = all(trial.status.is_final for trial in self.trials.values())
        is_all = is_final and self.not_created == 0
        return not is_all or any(fresh_runs(self.spec, self.trials))

    @property
    def errored(self) -> int:
        """The number of trials with the status ERROR."""
        return sum(trial.status is Status.ERROR for trial in self.trials.values())

    @property
    def has_queue(self) -> bool:
        """True if trials wait for resources."""
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
            trial = self.trials[event.trial_id] = dated(before, trial, event, self.now)
            if trial.status in _MAKES_ROOM:
                self.search_waits = False
            if before.status is Status.PAUSED:
                self.resume_when_free.discard(event.trial_id)
        if trial.origin is not None or before.origin is not None:
            self._index_clone(before, trial)
        if self.policy is not None and not trial.spec.confirms:
            self.policy.follow(before, trial)
        return trial

    def note(self, event: Event, now: float) -> None:
        """Remember an event of the experiment, for people. Called before it is handled."""
        if isinstance(event, (Begun, Recalled)):
            facts: dict[str, Any] = {
                "num_samples": event.spec.num_samples,
                "scheduler": event.spec.scheduler,
            }
        elif isinstance(event, Resumed):
            facts = {"was_ended": self.ending is not None}
        else:
            facts = to_fields(event)
        epoch = event.epoch if isinstance(event, Resumed) else self.epoch
        one = Happening(
            name=type(event).__name__, at=now, since=self.now or now, epoch=epoch, facts=facts
        )
        self.happened = (*self.happened[1 - _MOST_HAPPENINGS :], one)

    def paused_by(self, trial_id: str) -> tuple[str, float] | None:
        """The person who has paused the trial last, and when (seconds since 1970)."""
        for one in reversed(self.happened):
            if one.name == PauseRequested.__name__ and one.facts.get("trial_id") == trial_id:
                return str(one.facts.get("by", "")), one.at
        return None

    def why_interrupted(self) -> str:
        """Why the end of the run interrupts a trial, for people."""
        if self.ending is None:
            return "no process ran the experiment any more"
        return self.ending.message or f"the run ended: {self.ending.reason}"

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
        self.search_ended = self.is_complete = self.confirming = False
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
            self.placement.wait(trial_id, WaitsFor.PERSON)
        else:
            awaits = self.awaits_answer(trial)
            self.placement.wait(trial_id, WaitsFor.CHECKPOINT if awaits else None)

    def awaits_answer(self, trial: Trial) -> bool:
        """True if its node took the checkpoint with it that the trial would resume from, and it is
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
                placement.wait(trial_id, WaitsFor.CHECKPOINT)
            elif placement.waits.get(trial_id) is WaitsFor.CHECKPOINT and not awaits:
                placement.leave_queue(trial_id)
                self.enqueue(trial_id)
                released = True
        return released

    @property
    def has_policy(self) -> bool:
        """True if decisions are made: by the policy or, during a replay, by the journal."""
        return self.policy is not None or self._recorded is not None

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
