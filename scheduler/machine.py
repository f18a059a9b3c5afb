"""The heart: an event comes in, effects go out, and the journal of events is the experiment.

`Machine.handle` decides everything that holdfast decides: which trial runs where, which report
ends a trial, which failure is tried again, which checkpoint goes. It performs nothing. Folding the
journal through it restores an experiment, feeding it a virtual clock simulates one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, assert_never

from holdfast.scheduler.allotment import Allotment
from holdfast.scheduler.budgets import budget_of, has_left, wait_s
from holdfast.scheduler.effects import (
    AskStopper,
    Commit,
    Discard,
    Effect,
    Finish,
    Halt,
    Launch,
    Preempt,
    Release,
    Reply,
    Suggest,
    Wait,
    Warn,
)
from holdfast.scheduler.events import (
    Begun,
    CheckpointLost,
    EndOrdered,
    Event,
    Exited,
    ExperimentSpec,
    Raised,
    Resumed,
    SearchEnded,
    StopperAnswered,
    Suggested,
    WaitEnded,
)
from holdfast.scheduler.expected import Expected
from holdfast.scheduler.policy import (
    FIFOScheduler,
    Observation,
    PauseTrial,
    StopTrial,
    TrialEnded,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
)
from holdfast.scheduler.resuming import (
    back_to_waiting,
    by_progress,
    is_taken_up,
    reopening,
    uncommitted,
)
from holdfast.scheduler.retention import score_of, superseded
from holdfast.scheduler.verdict import Verdict
from holdfast.trial.errors import LOST_TYPES, Failure
from holdfast.trial.lifecycle import (
    Committed,
    Dropped,
    Errored,
    Interrupted,
    Launched,
    PauseOrdered,
    Reported,
    Retried,
    Returned,
    Saved,
    Started,
    StopOrdered,
    TrialEvent,
    Unpaused,
    advance,
    forgiven,
)
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.stopper import reaches
from holdfast.trial.trial import Status, Trial, evolve

# Reasons of EndOrdered after which an unfinished trial is left to be resumed.
RESUMABLE = ("interrupt", "preempted", "abort", "fail_fast", "errored")
# Kinds of failures that the end of the machine, or of the job, makes too.
_OF_THE_PROCESS = ("preempted", "lost", "memory", "hang")


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


class Machine:
    """All trials, what they hold and what waits. Change it only through `handle`."""

    def __init__(self, policy: TrialScheduler | None = None) -> None:
        self.policy = policy or FIFOScheduler()
        self.spec: ExperimentSpec = ExperimentSpec(experiment_id="", run="", trainable="", seed=0)
        self.trials: dict[str, Trial] = {}
        self.allotment = Allotment({})
        self.expected = Expected(self.spec)
        self.epoch = 1
        self.boot_id = ""
        self.ending: EndOrdered | None = None
        self.finished = False
        self.search_ended = False
        self.active_s = 0.0
        self.paused: set[str] = set()
        self.errored_before = 0
        self.asking = False
        self.now = 0.0
        # Each trial that the newest event has moved, as it was before: mostly that of the event.
        self.moved: dict[str, Trial] = {}

    def handle(self, event: Event, *, now: float) -> list[Effect]:
        """Take in one fact that happened at `now` (seconds since the epoch).

        Raises InvalidTransition if the event cannot follow what went before.
        """
        self._pass_time(event, now)
        self.moved = {}
        match event:
            case Reported():
                return self._on_report(event)
            case Started() | Returned():
                return self._on_progress(event)
            case Exited():
                return self._on_exit(event)
            case WaitEnded():
                return self._on_wait_ended(event)
            case Suggested():
                return self._on_suggestion(event)
            case Raised():
                return self._on_raised(event)
            case Committed():
                return self._on_committed(event)
            case Saved():
                return self._on_saved(event)
            case StopperAnswered():
                return self._on_stopper(event)
            case SearchEnded():
                self.asking, self.search_ended = False, True
                return self._go_on()
            case EndOrdered():
                return [*self._end(event), *self._go_on()]
            case CheckpointLost():
                self._move(Dropped(trial_id=event.trial_id, index=event.index))
                return []
            case Begun():
                self.spec, self.boot_id = event.spec, event.boot_id
                self.allotment = Allotment(event.capacity)
                self.expected = Expected(event.spec)
                return self._go_on()
            case Resumed():
                return self._on_resumed(event)
            case _:
                assert_never(event)

    # -- time ---------------------------------------------------------------------------------

    def _pass_time(self, event: Event, now: float) -> None:
        """Count the seconds that the experiment was alive; the gap before a restore is none."""
        if isinstance(event, CheckpointLost):
            # A restore finds it out in that gap, before it says that it resumes.
            return
        if self.now and not isinstance(event, (Begun, Resumed)):
            self.active_s += max(0.0, now - self.now)
        self.now = now

    # -- one trial ----------------------------------------------------------------------------

    def _move(self, event: TrialEvent) -> Trial:
        before = self.trials[event.trial_id]
        self.moved.setdefault(event.trial_id, before)
        trial = self.trials[event.trial_id] = advance(before, event)
        return trial

    def _is_current(self, trial_id: str, attempt: int) -> bool:
        """False for what an attempt says that was given up already."""
        trial = self.trials[trial_id]
        return trial.attempt == attempt and trial.status.has_worker

    def _on_report(self, event: Reported) -> list[Effect]:
        if not self._is_current(event.trial_id, event.attempt):
            return []
        trial = self._move(event)
        row = row_of(trial)
        effects: list[Effect] = []
        if event.checkpoint is not None:
            effects += self._keep_newest(trial, row)
        if not self.expected.is_met and (text := self.expected.fault_in(row, event.metrics)):
            effects += self._end(EndOrdered(reason="abort", message=text))
        if self.spec.has_stopper:
            effects.append(
                AskStopper(
                    trial_id=event.trial_id, attempt=event.attempt, iteration=event.iteration
                )
            )
            return effects
        return effects + self._judge(event.trial_id, row)

    def _keep_newest(self, trial: Trial, row: dict[str, Any]) -> list[Effect]:
        """Score the checkpoint that has just come by the row that it belongs to."""
        *older, newest = trial.checkpoints
        attribute = self.spec.checkpoint.checkpoint_score_attribute
        newest = replace(newest, score=score_of(row, attribute))
        trial = forgiven(trial) if self.spec.failure.reset_on_progress else trial
        self.trials[trial.trial_id] = evolve(trial, checkpoints=(*older, newest))
        kept = Commit(trial_id=trial.trial_id, checkpoint=newest)
        text = self.expected.doubt_of_score(row, trial.row or {})
        return [kept, Warn(text=text)] if text else [kept]

    def _on_saved(self, event: Saved) -> list[Effect]:
        trial = self.trials[event.trial_id]
        alive = trial.status.has_worker or trial.status is Status.PAUSED
        if trial.attempt != event.attempt or not alive:
            return []
        trial = self._move(event)
        return self._keep_newest(trial, row_of(trial))

    @property
    def is_barren(self) -> bool:
        """Whether a restore has nothing to go on from: nothing was reported, and nothing ended
        well, or the first report was not what the settings name."""
        return not self.expected.is_met or not any(
            trial.row is not None or trial.checkpoints or trial.status is Status.TERMINATED
            for trial in self.trials.values()
        )

    def _judge(self, trial_id: str, row: dict[str, Any], *, stop: bool = False) -> list[Effect]:
        """Answer a report: the user's bounds first, then the scheduler."""
        trial = self.trials[trial_id]
        effects: list[Effect] = []
        if not trial.status.has_worker:
            return effects
        if stop or row.get("done") is True or reaches(row, self.spec.stop):
            effects += self._stop(trial_id, reporting=True)
        elif trial.status is Status.RUNNING:
            effects += self._observe(TrialReported(trial_id=trial_id, row=row))
        verdict = _VERDICTS[self.trials[trial_id].status]
        effects.append(Reply(trial_id=trial_id, attempt=trial.attempt, verdict=verdict))
        return effects

    def _observe(self, observation: Observation) -> list[Effect]:
        effects: list[Effect] = []
        decisions = self.policy.decide(self, observation)
        for decision in decisions:
            reporting = decision.trial_id == observation.trial_id
            match decision:
                case StopTrial():
                    effects += self._stop(decision.trial_id, reporting=reporting)
                case PauseTrial():
                    effects += self._pause(decision.trial_id, reporting=reporting)
                case UnpauseTrial():
                    self._unpause(decision.trial_id)
                case _:
                    assert_never(decision)
        return [*effects, *self._fill()] if decisions else effects

    def _pause(self, trial_id: str, *, reporting: bool) -> list[Effect]:
        if self.trials[trial_id].status is not Status.RUNNING:
            return []
        self._move(PauseOrdered(trial_id=trial_id))
        self.paused.add(trial_id)
        return [] if reporting else [self._halt(trial_id)]

    def _unpause(self, trial_id: str) -> None:
        if trial_id not in self.paused:
            return
        self.paused.discard(trial_id)
        self._move(Unpaused(trial_id=trial_id))
        self._enqueue(trial_id)

    def _enqueue(self, trial_id: str) -> None:
        """Let a pending trial wait for resources, once its last worker is gone or idle."""
        if self.trials[trial_id].status is Status.PENDING:
            self.allotment.wait(trial_id)

    def _stop(self, trial_id: str, *, reporting: bool) -> list[Effect]:
        """`reporting`: the worker waits for an answer, which will carry the order."""
        status = self.trials[trial_id].status
        if status.is_final or status is Status.STOPPING:
            return []
        self._move(StopOrdered(trial_id=trial_id))
        self.paused.discard(trial_id)
        if status.has_worker:
            saves = bool(status is Status.RUNNING and self.spec.checkpoint.checkpoint_at_end)
            return [] if reporting else [self._halt(trial_id, after_step=saves)]
        self.allotment.give_up(trial_id)
        return self._observe(TrialEnded(trial_id=trial_id))

    def _halt(self, trial_id: str, *, after_step: bool = False) -> Halt:
        attempt = self.trials[trial_id].attempt
        return Halt(trial_id=trial_id, attempt=attempt, after_step=after_step)

    def _on_progress(self, event: Started | Returned) -> list[Effect]:
        if not self._is_current(event.trial_id, event.attempt):
            return self._go_on() if self._rest(event) else []
        trial = self._move(event)
        effects: list[Effect] = []
        if trial.status.is_final:
            effects += self._observe(TrialEnded(trial_id=event.trial_id))
        if self._rest(event) or effects:
            effects += self._go_on()
        return effects

    def _rest(self, event: Started | Returned) -> bool:
        """Whether the worker that returned is now idle, kept for another trial."""
        if not isinstance(event, Returned) or not self.spec.reuse_actors:
            return False
        if event.attempt != self.trials[event.trial_id].attempt:
            return False
        if not self.allotment.rest(event.trial_id):
            return False
        self._enqueue(event.trial_id)
        return True

    def _on_raised(self, event: Raised) -> list[Effect]:
        if not self._is_current(event.trial_id, event.attempt):
            return []
        if self.trials[event.trial_id].status is Status.STOPPING:
            # It was told to end, and an error while it unwinds changes nothing about that.
            self._move(Returned(trial_id=event.trial_id, attempt=event.attempt))
            return self._observe(TrialEnded(trial_id=event.trial_id))
        if self._is_of_the_end(event.failure):
            # Whoever ends the script may end its workers, too: that is no failure of theirs.
            self._move(Interrupted(trial_id=event.trial_id))
            return []
        return self._fail(event.trial_id, event.failure)

    def _is_of_the_end(self, failure: Failure) -> bool:
        """While a job is ended, user code may fail because programs that it needs are ended."""
        if self.ending is None:
            return False
        return self.ending.reason == "preempted" or failure.kind in _OF_THE_PROCESS

    def _fail(self, trial_id: str, failure: Failure) -> list[Effect]:
        config, trial = self.spec.failure, self.trials[trial_id]
        budget = budget_of(failure, config)
        if budget is None or has_left(trial, budget, config):
            trial = self._move(Retried(trial_id=trial_id, failure=failure, budget=budget))
            return [] if budget is None else self._delay(trial)
        self._move(Errored(trial_id=trial_id, failure=failure, budget=budget))
        effects = self._end_for_errors(trial_id, failure)
        return effects + self._observe(TrialEnded(trial_id=trial_id))

    def _delay(self, trial: Trial) -> list[Effect]:
        seconds = wait_s(trial, self.spec.failure, self.spec.seed)
        if not seconds:
            return []
        self.allotment.delayed.add(trial.trial_id)
        return [Wait(trial_id=trial.trial_id, attempt=trial.attempt, seconds=seconds)]

    def _on_wait_ended(self, event: WaitEnded) -> list[Effect]:
        if event.attempt != self.trials[event.trial_id].attempt:
            return []
        self.allotment.delayed.discard(event.trial_id)
        self._enqueue(event.trial_id)
        return self._go_on()

    def _end_for_errors(self, trial_id: str, failure: Failure) -> list[Effect]:
        """End the run where it may not have so many trials that have errored."""
        config = self.spec.failure
        told = f"trial {trial_id} failed{{}}: {failure.headline}. The other trials can be resumed"
        if config.fail_fast:
            message = told.format(" and fail_fast is set")
            return self._end(EndOrdered(reason="fail_fast", message=message))
        most = config.max_errored_trials
        if most is None or self._errored() - self.errored_before <= most:
            return []
        message = told.format(f", which is one more than max_errored_trials={most} allows")
        return self._end(EndOrdered(reason="errored", message=message))

    def _errored(self) -> int:
        return sum(trial.status is Status.ERROR for trial in self.trials.values())

    def _on_exit(self, event: Exited) -> list[Effect]:
        if event.attempt != self.trials[event.trial_id].attempt:
            return []
        self.allotment.leave(event.trial_id)
        effects: list[Effect] = []
        if self._is_current(event.trial_id, event.attempt):
            effects += self._on_raised(
                Raised(trial_id=event.trial_id, attempt=event.attempt, failure=_lost(event, self))
            )
        self._enqueue(event.trial_id)
        return effects + self._go_on()

    def _on_stopper(self, event: StopperAnswered) -> list[Effect]:
        effects: list[Effect] = []
        if not self._is_current(event.trial_id, event.attempt):
            return effects
        trial = self.trials[event.trial_id]
        if event.failure is not None:
            effects += self._on_raised(
                Raised(trial_id=event.trial_id, attempt=event.attempt, failure=event.failure)
            )
            effects.append(
                Reply(trial_id=trial.trial_id, attempt=trial.attempt, verdict=Verdict.STOP)
            )
            return effects
        if event.stop_all:
            effects += self._end(
                EndOrdered(reason="stopper", message="the stopper ended the experiment")
            )
        stop = event.stop or event.stop_all
        return effects + self._judge(event.trial_id, row_of(trial), stop=stop)

    def _on_committed(self, event: Committed) -> list[Effect]:
        trial = self._move(event)
        effects: list[Effect] = []
        for checkpoint in superseded(trial.checkpoints, self.spec.checkpoint):
            self._move(Dropped(trial_id=trial.trial_id, index=checkpoint.index))
            effects.append(Discard(trial_id=trial.trial_id, checkpoint=checkpoint))
        return effects

    # -- the experiment -----------------------------------------------------------------------

    def _on_suggestion(self, event: Suggested) -> list[Effect]:
        self.asking = False
        spec = event.spec
        self.trials[spec.trial_id] = Trial(spec=spec)
        self.allotment.wait(spec.trial_id)
        return [*self._refuse_impossible([self.trials[spec.trial_id]]), *self._go_on()]

    def _refuse_impossible(self, waiting: Iterable[Trial]) -> list[Effect]:
        """A trial that could never start would be waited for without end."""
        known: set[PlacementGroupFactory] = set()
        for trial in waiting:
            resources = trial.spec.resources
            if resources in known:
                continue
            known.add(resources)
            amounts = resources.required_resources
            capacity = self.allotment.capacity
            if not capacity.ever_fits(amounts):
                message = (
                    f"trial {trial.trial_id} asks for {amounts}, this machine has "
                    f"{capacity.total}: it could never start"
                )
                return self._end(EndOrdered(reason="abort", message=message))
        return []

    def _end(self, order: EndOrdered) -> list[Effect]:
        """Stop every worker; what is under way ends well, or is left to be resumed."""
        if self.ending is not None and order.reason not in ("interrupt", "preempted", "abort"):
            return []
        self.ending = order
        if order.reason in RESUMABLE:
            return self._interrupt(may_save=order.reason == "preempted")
        waiting = (*self.allotment.queue, *sorted(self.allotment.delayed))
        begun = [trial_id for trial_id in waiting if self.trials[trial_id].attempt]
        effects: list[Effect] = []
        for trial_id in (*self.allotment.holds, *begun, *sorted(self.paused)):
            effects += self._stop(trial_id, reporting=False)
        return effects

    def _interrupt(self, *, may_save: bool) -> list[Effect]:
        """Take the workers from those that would go on; one that is stopping may still do so."""
        effects: list[Effect] = []
        for trial_id in self.allotment.holds:
            trial = self.trials[trial_id]
            if may_save and trial.status is Status.RUNNING:
                effects.append(Preempt(trial_id=trial_id, attempt=trial.attempt))
            elif trial.status in (Status.STARTING, Status.RUNNING):
                self._move(Interrupted(trial_id=trial_id))
                effects.append(self._halt(trial_id))
        return effects

    def _on_resumed(self, event: Resumed) -> list[Effect]:
        self.epoch, self.boot_id = event.epoch, event.boot_id
        if not event.strict:
            self.expected.forgive()
        self.ending, self.finished, self.asking = self._spent(), False, False
        self.paused = set()
        stopping = [t.trial_id for t in self.trials.values() if t.status is Status.STOPPING]
        waiting = [trial_id for trial_id in self.trials if self._reopen(trial_id, event)]
        trials = by_progress(self.trials[trial_id] for trial_id in waiting)
        self.allotment = Allotment(event.capacity, queue=(trial.trial_id for trial in trials))
        self.errored_before = self._errored()
        effects: list[Effect] = []
        for trial in self.trials.values():
            effects += uncommitted(trial)
        for trial_id in stopping:
            if self.trials[trial_id].status.is_final:
                effects += self._observe(TrialEnded(trial_id=trial_id))
        return [*effects, *self._refuse_impossible(trials), *self._go_on()]

    def _spent(self) -> EndOrdered | None:
        """Where an earlier incarnation has used the time up, there is none to begin a trial."""
        budget_s = self.spec.time_budget_s
        if budget_s is None or self.active_s < budget_s:
            return None
        return budget_spent(budget_s)

    def _reopen(self, trial_id: str, event: Resumed) -> bool:
        """Bring a trial of an earlier incarnation to where this one may go on; whether it does."""
        trial = self.trials[trial_id]
        if befell := back_to_waiting(trial):
            trial = self._move(befell)
        if not is_taken_up(trial, event, is_over=self.ending is not None):
            return False
        if changes := reopening(trial, event):
            self._move(changes)
        return True

    def _go_on(self) -> list[Effect]:
        """Fill what is free; at the end, finish."""
        return [*self._fill(), *self._conclude()]

    def _fill(self) -> list[Effect]:
        """Give what is free to waiting trials first, then to new ones."""
        effects: list[Effect] = []
        while not self.ending and self._has_place():
            if queue := self.allotment.queue:
                launch = self._launch(queue[0])
                if launch is None:
                    effects += self._release_idle()
                    break
                queue.popleft()
                effects.append(launch)
            elif self._wants_suggestion():
                self.asking = True
                effects.append(Suggest(index=len(self.trials)))
            else:
                break
        return effects

    def _has_place(self) -> bool:
        most = self.spec.max_concurrent
        return most is None or len(self.allotment.holds) < most

    def _wants_suggestion(self) -> bool:
        if self.asking or self.search_ended:
            return False
        allotment = self.allotment
        if allotment.idle or self.spec.resources is None or not allotment.holds:
            return True
        return allotment.has_room(self.spec.resources.required_resources)

    def _launch(self, trial_id: str) -> Launch | None:
        amounts = self.trials[trial_id].spec.resources.required_resources
        given = self.allotment.take(trial_id, amounts)
        if given is None:
            return None
        trial = self._move(Launched(trial_id=trial_id))
        return Launch(
            trial_id=trial_id,
            attempt=trial.attempt,
            allocation=given.allocation,
            checkpoint=trial.newest_checkpoint,
            reuse=given.reuse,
        )

    def _release_idle(self) -> list[Effect]:
        return [
            Release(trial_id=trial_id, attempt=self.trials[trial_id].attempt)
            for trial_id in self.allotment.recall_idle()
        ]

    def _conclude(self) -> list[Effect]:
        holding, waiting = self.allotment.holds, self.allotment.queue or self.allotment.delayed
        if self.finished or holding or (self.asking and not self.ending):
            return []
        if not self.ending and (waiting or not self.search_ended):
            return []
        if self.paused and not self.ending:
            for trial_id in sorted(self.paused):
                self._unpause(trial_id)
            return self._go_on()
        if self.allotment.idle:
            return self._release_idle()
        self.finished = True
        if self.ending:
            return [Finish(reason=self.ending.reason, message=self.ending.message)]
        return [Finish(reason="done")]


def budget_spent(budget_s: float) -> EndOrdered:
    """The order that ends a run which has taken as long as it may."""
    return EndOrdered(reason="budget", message=f"the time budget of {budget_s:g} s is spent")


_VERDICTS = {
    Status.RUNNING: Verdict.CONTINUE,
    Status.STOPPING: Verdict.STOP,
    Status.PAUSED: Verdict.PAUSE,
    Status.PENDING: Verdict.STOP,
    Status.ERROR: Verdict.STOP,
    Status.TERMINATED: Verdict.STOP,
}


def _lost(event: Exited, machine: Machine) -> Failure:
    place = machine.trials[event.trial_id].place
    return Failure(
        kind=event.kind,
        type_name=LOST_TYPES.get(event.kind, "WorkerLost"),
        message=f"the worker process {place.pid or ''} {event.cause}".replace("  ", " "),
        pid=place.pid or None,
        hostname=place.hostname,
    )
