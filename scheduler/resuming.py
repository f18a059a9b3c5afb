"""What a restore does with each trial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from holdfast.names import listed
from holdfast.scheduler.confirming import fresh_runs
from holdfast.scheduler.effects import AskScheduler, Commit, Effect, Warn
from holdfast.scheduler.events import EndOrdered, ExperimentSpec, Resumed, Suggested
from holdfast.scheduler.launching import impossible
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.scheduler.placement import Placement
from holdfast.scheduler.policy import TrialEnded
from holdfast.scheduler.state import State, row_of
from holdfast.scheduler.stopping import budget_spent, end, fill_or_finish, observe
from holdfast.trial.config import ResumeType
from holdfast.trial.events import Interrupted, Reopened, Unpaused
from holdfast.trial.metrics import reaches
from holdfast.trial.trial import Status, Trial, evolve


def on_resumed(state: State, event: Resumed) -> list[Effect]:
    """Resume the experiment in a new process, which has no workers yet."""
    why, silent_since = state.why_interrupted(), state.happened[-1].since
    state.epoch, state.boot_id = event.epoch, event.boot_id
    stopped = _stopped(state, event)
    state.ahead = kept_ahead(state, event)
    if event.spec is not None:
        _change(state, event.spec)
    if not event.strict:
        state.expected.forgive()
    state.ending = _spent(state.spec, state.active_s) or stopped
    state.finished = False
    state.asking = state.asking_ahead = state.search_waits = state.asking_config = False
    state.deferred_replies, state.saving = {}, {}
    stopping = [t.trial_id for t in state.trials.values() if t.status is Status.STOPPING]
    text = _without_checkpoint(state, event)
    _interrupt_all(state, why, silent_since)
    waiting = [trial_id for trial_id in state.trials if _reopen(state, trial_id, event)]
    for trial_id in waiting:
        _set_terms(state, trial_id, event)
    trials = _by_progress(state.trials[trial_id] for trial_id in waiting)
    cluster = Cluster(event.offer, former=state.cluster.past)
    state.placement = Placement(event.capacity, cluster=cluster)
    for trial in trials:
        state.enqueue(trial.trial_id)
    state.errored_before = state.errored
    effects: list[Effect] = [
        AskScheduler(trial_id=trial_id, question=question)
        for trial_id, question in state.questions.items()
    ]
    effects += [Warn(text=text)] if text else []
    for trial in state.trials.values():
        effects += _uncommitted(trial)
    for trial_id in stopping:
        if state.trials[trial_id].status.is_final:
            effects += observe(state, TrialEnded(trial_id=trial_id))
    if text := impossible(state, trials):
        effects += end(state, EndOrdered(reason="abort", message=text))
    return [*effects, *fill_or_finish(state)]


def kept_ahead(state: State, event: Resumed) -> tuple[Suggested, ...]:
    """What the search has suggested ahead, and a restore does not ask for again: nothing of
    another search space."""
    is_other = event.spec is not None and event.spec.space_number != state.spec.space_number
    return () if is_other else state.ahead


def _change(state: State, spec: ExperimentSpec) -> None:
    """Change the settings of the experiment; its trials stay."""
    old, state.spec = state.spec, spec
    has_rows = any(trial.row is not None for trial in state.trials.values())
    state.expected = state.expected.changed(old, spec, has_rows=has_rows)
    if _is_wider(old, spec):
        state.expect_more()
    if old.budget_s != spec.budget_s:  # there may be time for the search again
        state.confirming = False


def _stopped(state: State, event: Resumed) -> EndOrdered | None:
    """The end that the stopper ordered before the restore, unless the stopper was replaced."""
    by_stopper = state.ending is not None and state.ending.reason == "stopper"
    is_changed = event.spec is not None and event.spec.stop_number != state.spec.stop_number
    return state.ending if by_stopper and not is_changed else None


def _spent(spec: ExperimentSpec, active_s: float) -> EndOrdered | None:
    """The order that ends the run if earlier runs have used up the time budget."""
    budget_s = spec.budget_s
    return None if budget_s is None or active_s < budget_s else budget_spent(budget_s)


def _reopen(state: State, trial_id: str, event: Resumed) -> bool:
    """Prepare a trial of an earlier run for this one; return whether it should run."""
    trial = state.trials[trial_id]
    if _stays_paused(state, trial, event):
        return False
    if trial.status is Status.PAUSED:
        trial = state.move(Unpaused(trial_id=trial_id))
    if not _should_run(trial, event, state.spec, is_over=state.ending is not None):
        return False
    if changes := _reopening(trial, event):
        if changes.from_scratch and trial.rungs:
            state.has_all_rungs = False  # it forgets them
        state.move(changes)
    return True


def _stays_paused(state: State, trial: Trial, event: Resumed) -> bool:
    """True if only the scheduler decides when it resumes."""
    is_paused = trial.status is Status.PAUSED and trial.trial_id not in state.resume_when_free
    return is_paused and event.unfinished is ResumeType.RESUME and state.spec.scheduler != ""


def _set_terms(state: State, trial_id: str, event: Resumed) -> None:
    trial = state.trials[trial_id]
    spec = trial.spec
    if event.resources is not None:
        spec = replace(spec, resources=event.resources)
    if event.config is not None:
        spec = replace(spec, config=event.config)
    if spec is not trial.spec:
        state.trials[trial_id] = evolve(trial, spec=spec)


def _interrupt_all(state: State, why: str, ended_at: float) -> None:
    """Return active trials to the queue: the experiment stopped while they ran."""
    for trial_id, trial in list(state.trials.items()):
        if trial.status.has_worker:
            state.move(Interrupted(trial_id=trial_id, why=why, ended_at=ended_at))


def _should_run(trial: Trial, event: Resumed, spec: ExperimentSpec, *, is_over: bool) -> bool:
    """Whether a trial without a worker should run; `is_over`: the run may start no ended trial."""
    if trial.attempt == 0 and not trial.status.is_final:
        return True
    return is_selected(trial, event, spec) and not (is_over and trial.status.is_final)


def has_work(state: State, event: Resumed) -> bool:
    """True if the experiment that `event` restores has anything left to do."""
    spec = event.spec or state.spec
    if not state.finished:
        return True
    if _spent(spec, state.active_s) or _stopped(state, event):
        return False
    has_more = _is_wider(state.spec, spec) or not state.search_ended or state.configs
    if has_more or any(fresh_runs(spec, state.trials)):
        return True
    return any(is_selected(trial, event, spec) for trial in state.trials.values())


def _is_wider(old: ExperimentSpec, new: ExperimentSpec) -> bool:
    """True if the search may suggest trials that it could not suggest before."""
    return (old.num_samples, old.space_number) != (new.num_samples, new.space_number)


def is_selected(trial: Trial, event: Resumed, spec: ExperimentSpec) -> bool:
    """True if the restore's settings select trials in its state, and it can run."""
    wish = _wish(trial, event)
    if wish is ResumeType.RESUME and trial.status is Status.TERMINATED:
        can_resume = bool(trial.checkpoints) and not trial.has_trained_its_length
        return can_resume and not reaches(row_of(trial), spec.stop)
    return wish is not ResumeType.SKIP


def written(state: State, event: Resumed) -> Iterator[Trial]:
    """The trials that the restored run writes to before it knows of others: those that may run,
    those with a checkpoint that is not committed yet, and the sources of clones."""
    spec, trials = event.spec or state.spec, state.trials
    for trial in trials.values():
        if trial.origin is not None:
            yield trials[trial.origin.trial_id]
        has_more = any(not checkpoint.committed for checkpoint in trial.checkpoints)
        if not trial.status.is_final or has_more or is_selected(trial, event, spec):
            yield trial


def restarts(trial: Trial, event: Resumed) -> bool:
    """True if the restore's settings restart the trial from scratch."""
    return _wish(trial, event) is ResumeType.RESTART


def _without_checkpoint(state: State, event: Resumed) -> str:
    """A warning about finished trials that should resume but have no checkpoint; "" if there are
    none."""
    if event.finished is not ResumeType.RESUME or state.ending is not None:
        return ""
    trials = [t for t in state.trials.values() if t.status is Status.TERMINATED]
    names = [trial.spec.name for trial in trials if not trial.checkpoints]
    if not names:
        return ""
    return (
        f"{listed(names, 3)} finished without a checkpoint to resume from, and "
        f"{'stays' if len(names) == 1 else 'stay'} finished: ResumeConfig(finished='restart') "
        "restarts such trials"
    )


def _reopening(trial: Trial, event: Resumed) -> Reopened | None:
    """The event that reopens a trial; None if it needs none."""
    if trial.attempt == 0 and not trial.status.is_final:
        return None
    from_scratch = restarts(trial, event)
    if not from_scratch and not trial.status.is_final:
        return None
    return Reopened(trial_id=trial.trial_id, from_scratch=from_scratch)


def _wish(trial: Trial, event: Resumed) -> ResumeType:
    match trial.status:
        case Status.TERMINATED:
            return event.finished
        case Status.ERROR:
            return event.errored
        case _:
            return event.unfinished


def _uncommitted(trial: Trial) -> Iterator[Commit]:
    """The orders to commit checkpoints whose commits did not finish before a crash."""
    for checkpoint in trial.checkpoints:
        if not checkpoint.committed:
            yield Commit(trial_id=trial.trial_id, checkpoint=checkpoint)


def _by_progress(trials: Iterable[Trial]) -> list[Trial]:
    """Sort trials that have run before first: a restore continues where the run stopped."""
    return sorted(trials, key=lambda trial: (trial.attempt == 0, trial.spec.index))
