"""The heart: an event comes in, effects go out, and the journal of events is the experiment.

`Machine.handle` decides everything that holdfast decides: which trial runs where, which report
ends a trial, which failure is tried again, which checkpoint goes. It performs nothing. Folding the
journal through it restores an experiment, feeding it a virtual clock simulates one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, assert_never

from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.effects import (
    AskStopper,
    Commit,
    Discard,
    Effect,
    Finish,
    Halt,
    Launch,
    Release,
    Reply,
    Suggest,
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
)
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
from holdfast.scheduler.retention import score_of, superseded
from holdfast.scheduler.verdict import Verdict
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.errors import Failure
from holdfast.trial.lifecycle import (
    Committed,
    Dropped,
    Errored,
    Interrupted,
    Launched,
    PauseOrdered,
    Reopened,
    Reported,
    Retried,
    Returned,
    Saved,
    Started,
    StopOrdered,
    TrialEvent,
    Unpaused,
    advance,
)
from holdfast.trial.resources import Allocation
from holdfast.trial.stopper import lookup, reaches
from holdfast.trial.trial import Status, Trial

# Reasons of EndOrdered after which an unfinished trial is left to be resumed.
RESUMABLE = ("interrupt", "abort")


def row_of(event: Reported) -> dict[str, Any]:
    """What stop conditions, policies and stoppers see: the metrics and the counts of the trial."""
    return {
        **event.metrics,
        "training_iteration": event.iteration,
        "time_this_iter_s": event.time_this_iter_s,
        "time_total_s": event.time_total_s,
        "timestamp": int(event.timestamp),
        "trial_id": event.trial_id,
    }


class Machine:
    """All trials, what they hold and what waits. Change it only through `handle`."""

    def __init__(self, policy: TrialScheduler | None = None) -> None:
        self.policy = policy or FIFOScheduler()
        self.spec: ExperimentSpec = ExperimentSpec(experiment_id="", run="", trainable="", seed=0)
        self.trials: dict[str, Trial] = {}
        self.capacity = Capacity({})
        self.epoch = 1
        self.boot_id = ""
        self.ending: EndOrdered | None = None
        self.finished = False
        self.search_ended = False
        self.metric_seen = False
        self.active_s = 0.0
        # Indexes, each derived from the trials: a scan per event costs 1 ms at 10,000 trials.
        self.holds: dict[str, Allocation] = {}
        self.idle: dict[str, Allocation] = {}
        self.queue: deque[str] = deque()
        self.paused: set[str] = set()
        self.asking = False
        self.now = 0.0

    def handle(self, event: Event, *, now: float) -> list[Effect]:
        """Take in one fact that happened at `now` (seconds since the epoch).

        Raises InvalidTransition if the event cannot follow what went before.
        """
        self._pass_time(event, now)
        match event:
            case Reported():
                return self._on_report(event)
            case Started() | Returned():
                return self._on_progress(event)
            case Exited():
                return self._on_exit(event)
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
                self.spec, self.capacity = event.spec, Capacity(event.capacity)
                self.boot_id = event.boot_id
                return self._go_on()
            case Resumed():
                return self._on_resumed(event)
            case _:
                assert_never(event)

    # -- time ---------------------------------------------------------------------------------

    def _pass_time(self, event: Event, now: float) -> None:
        """Count the seconds that the experiment was alive; the gap before a restore is none."""
        if self.now and not isinstance(event, (Begun, Resumed)):
            self.active_s += max(0.0, now - self.now)
        self.now = now

    # -- one trial ----------------------------------------------------------------------------

    def _move(self, event: TrialEvent) -> Trial:
        trial = advance(self.trials[event.trial_id], event)
        self.trials[event.trial_id] = trial
        return trial

    def _is_current(self, trial_id: str, attempt: int) -> bool:
        """False for what an attempt says that was given up already."""
        trial = self.trials[trial_id]
        return trial.attempt == attempt and trial.status.has_worker

    def _on_report(self, event: Reported) -> list[Effect]:
        if not self._is_current(event.trial_id, event.attempt):
            return []
        row = row_of(event)
        effects: list[Effect] = []
        if event.checkpoint is not None:
            checkpoint = self._scored(event.checkpoint, row)
            event = replace(event, checkpoint=checkpoint)
            effects.append(Commit(trial_id=event.trial_id, checkpoint=checkpoint))
        self._move(event)
        if not self.metric_seen:
            effects += self._check_metric(row)
        if self.spec.has_stopper:
            effects.append(
                AskStopper(
                    trial_id=event.trial_id, attempt=event.attempt, iteration=event.iteration
                )
            )
            return effects
        return effects + self._judge(event.trial_id, row)

    def _scored(self, checkpoint: CheckpointRecord, row: dict[str, Any]) -> CheckpointRecord:
        score = score_of(row, self.spec.checkpoint.checkpoint_score_attribute)
        return replace(checkpoint, score=score)

    def _on_saved(self, event: Saved) -> list[Effect]:
        trial = self.trials[event.trial_id]
        alive = trial.status.has_worker or trial.status is Status.PAUSED
        if trial.attempt != event.attempt or not alive:
            return []
        checkpoint = self._scored(event.checkpoint, dict(trial.row or {}))
        self._move(replace(event, checkpoint=checkpoint))
        return [Commit(trial_id=event.trial_id, checkpoint=checkpoint)]

    def _check_metric(self, row: dict[str, Any]) -> list[Effect]:
        """A goal that the first report does not hold is a mistake: say so now, not at the end."""
        self.metric_seen = True
        metric = self.spec.metric
        if metric is None or lookup(row, metric) is not None:
            return []
        reported = ", ".join(sorted(key for key in row if key not in ("trial_id", "timestamp")))
        return self._end(
            EndOrdered(
                reason="abort",
                message=f"TuneConfig(metric={metric!r}): the first report has no such value. "
                f"Reported were: {reported}",
            )
        )

    def _judge(self, trial_id: str, row: dict[str, Any], *, stop: bool = False) -> list[Effect]:
        """Answer a report: the user's bounds first, then the scheduler."""
        trial = self.trials[trial_id]
        effects: list[Effect] = []
        if not trial.status.has_worker:
            return effects
        if stop or row.get("done") is True or reaches(row, self.spec.stop):
            effects += self._stop(trial_id, reporting=True)
        else:
            effects += self._observe(TrialReported(trial_id=trial_id, row=row))
        verdict = _VERDICTS[self.trials[trial_id].status]
        effects.append(Reply(trial_id=trial_id, attempt=trial.attempt, verdict=verdict))
        return effects

    def _observe(self, observation: Observation) -> list[Effect]:
        effects: list[Effect] = []
        for decision in self.policy.decide(self, observation):
            reporting = decision.trial_id == observation.trial_id
            match decision:
                case StopTrial():
                    effects += self._stop(decision.trial_id, reporting=reporting)
                case PauseTrial():
                    self._move(PauseOrdered(trial_id=decision.trial_id))
                    self.paused.add(decision.trial_id)
                    if not reporting:
                        effects.append(self._halt(decision.trial_id))
                case UnpauseTrial():
                    self._unpause(decision.trial_id)
                case _:
                    assert_never(decision)
        return effects

    def _unpause(self, trial_id: str) -> None:
        self.paused.discard(trial_id)
        self._move(Unpaused(trial_id=trial_id))
        if trial_id not in self.holds:
            self.queue.append(trial_id)

    def _stop(self, trial_id: str, *, reporting: bool) -> list[Effect]:
        """`reporting`: the worker waits for an answer, which will carry the order."""
        status = self.trials[trial_id].status
        if status.is_final or status is Status.STOPPING:
            return []
        self._move(StopOrdered(trial_id=trial_id))
        self.paused.discard(trial_id)
        if status is Status.PENDING and trial_id in self.queue:
            self.queue.remove(trial_id)
        return [self._halt(trial_id)] if status.has_worker and not reporting else []

    def _halt(self, trial_id: str) -> Halt:
        return Halt(trial_id=trial_id, attempt=self.trials[trial_id].attempt)

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
        allocation = self.holds.pop(event.trial_id, None)
        if allocation is None:
            return False
        self.idle[event.trial_id] = allocation
        return True

    def _on_raised(self, event: Raised) -> list[Effect]:
        if not self._is_current(event.trial_id, event.attempt):
            return []
        if self.trials[event.trial_id].status is Status.STOPPING:
            # It was told to end, and an error while it unwinds changes nothing about that.
            self._move(Returned(trial_id=event.trial_id, attempt=event.attempt))
            return self._observe(TrialEnded(trial_id=event.trial_id))
        return self._fail(event.trial_id, event.failure)

    def _fail(self, trial_id: str, failure: Failure) -> list[Effect]:
        budget = self.spec.failure.max_failures
        if budget == -1 or self.trials[trial_id].failures < budget:
            self._move(Retried(trial_id=trial_id, failure=failure))
            return []
        self._move(Errored(trial_id=trial_id, failure=failure))
        effects = self._observe(TrialEnded(trial_id=trial_id))
        if self.spec.failure.fail_fast:
            message = f"trial {trial_id} failed and fail_fast is set: {failure.headline}"
            effects += self._end(EndOrdered(reason="fail_fast", message=message))
        return effects

    def _on_exit(self, event: Exited) -> list[Effect]:
        allocation = self.holds.pop(event.trial_id, None) or self.idle.pop(event.trial_id, None)
        if allocation is not None:
            self.capacity.give_back(allocation)
        effects: list[Effect] = []
        if self._is_current(event.trial_id, event.attempt):
            effects += self._on_raised(
                Raised(trial_id=event.trial_id, attempt=event.attempt, failure=_lost(event, self))
            )
        waits = self.trials[event.trial_id].status is Status.PENDING
        if waits and event.trial_id not in self.queue:
            self.queue.append(event.trial_id)
        return effects + self._go_on()

    def _on_stopper(self, event: StopperAnswered) -> list[Effect]:
        effects: list[Effect] = []
        if not self._is_current(event.trial_id, event.attempt):
            return effects
        trial = self.trials[event.trial_id]
        if event.failure is not None:
            effects += self._fail(event.trial_id, event.failure)
            effects.append(
                Reply(trial_id=trial.trial_id, attempt=trial.attempt, verdict=Verdict.STOP)
            )
            return effects
        if event.stop_all:
            effects += self._end(
                EndOrdered(reason="stopper", message="the stopper ended the experiment")
            )
        row = {
            **(trial.row or {}),
            "training_iteration": trial.iteration,
            "time_total_s": trial.time_total_s,
        }
        return effects + self._judge(event.trial_id, row, stop=event.stop or event.stop_all)

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
        self.queue.append(spec.trial_id)
        amounts = spec.resources.required_resources
        if not self.capacity.ever_fits(amounts):
            message = (
                f"trial {spec.trial_id} asks for {amounts}, this machine has "
                f"{self.capacity.total}: it could never start"
            )
            return [*self._end(EndOrdered(reason="abort", message=message)), *self._go_on()]
        return self._go_on()

    def _end(self, order: EndOrdered) -> list[Effect]:
        """Stop every worker; what is under way ends well, or is left to be resumed."""
        if self.ending is not None and order.reason not in RESUMABLE:
            return []
        self.ending = order
        effects: list[Effect] = []
        for trial_id in list(self.holds):
            status = self.trials[trial_id].status
            if order.reason in RESUMABLE and status.has_worker:
                self._move(Interrupted(trial_id=trial_id))
                effects.append(self._halt(trial_id))
            else:
                effects += self._stop(trial_id, reporting=False)
        return effects

    def _on_resumed(self, event: Resumed) -> list[Effect]:
        self.epoch, self.capacity = event.epoch, Capacity(event.capacity)
        self.boot_id = event.boot_id
        self.ending, self.finished, self.asking = None, False, False
        self.holds, self.idle, self.paused = {}, {}, set()
        effects: list[Effect] = []
        waiting: list[Trial] = []
        for trial_id in self.trials:
            trial = self._reopen(trial_id, event)
            effects += self._uncommitted(trial)
            skipped = event.unfinished == "skip" and trial.attempt > 0 and not trial.error
            if trial.status is Status.PENDING and not skipped:
                waiting.append(trial)
        self.queue = deque(trial.trial_id for trial in _by_progress(waiting))
        return effects + self._go_on()

    def _reopen(self, trial_id: str, event: Resumed) -> Trial:
        """Bring a trial of an earlier incarnation to where this one may take it up."""
        trial = self.trials[trial_id]
        if trial.status is Status.PAUSED:
            trial = self._move(Unpaused(trial_id=trial_id))
        elif trial.status.has_worker:
            trial = self._move(Interrupted(trial_id=trial_id))
        wish = {
            Status.TERMINATED: event.finished,
            Status.ERROR: event.errored,
            Status.PENDING: event.unfinished,
        }[trial.status]
        if wish == "restart" or (wish == "resume" and trial.status.is_final):
            trial = self._move(Reopened(trial_id=trial_id, from_scratch=wish == "restart"))
        return trial

    def _uncommitted(self, trial: Trial) -> Iterable[Commit]:
        """What a crash cut off is asked for again."""
        for checkpoint in trial.checkpoints:
            if not checkpoint.committed:
                yield Commit(trial_id=trial.trial_id, checkpoint=checkpoint)

    def _go_on(self) -> list[Effect]:
        """Fill what is free: waiting trials first, then new ones; at the end, finish."""
        effects: list[Effect] = []
        while not self.ending and self._has_place():
            if self.queue:
                launch = self._launch(self.queue[0])
                if launch is None:
                    effects += self._release_idle()
                    break
                self.queue.popleft()
                effects.append(launch)
            elif self._wants_suggestion():
                self.asking = True
                effects.append(Suggest(index=len(self.trials)))
            else:
                break
        return effects + self._conclude()

    def _has_place(self) -> bool:
        most = self.spec.max_concurrent
        return most is None or len(self.holds) < most

    def _wants_suggestion(self) -> bool:
        if self.asking or self.search_ended:
            return False
        if self.idle or self.spec.resources is None:
            return True
        allocation = self.capacity.take(self.spec.resources.required_resources)
        if allocation is not None:
            self.capacity.give_back(allocation)
        return allocation is not None or not self.holds

    def _launch(self, trial_id: str) -> Launch | None:
        amounts = self.trials[trial_id].spec.resources.required_resources
        reuse = next((old for old, held in self.idle.items() if held.amounts == amounts), None)
        allocation = self.idle.pop(reuse) if reuse else self.capacity.take(amounts)
        if allocation is None:
            return None
        self.holds[trial_id] = allocation
        trial = self._move(Launched(trial_id=trial_id))
        return Launch(
            trial_id=trial_id,
            attempt=trial.attempt,
            allocation=allocation,
            checkpoint=trial.newest_checkpoint,
            reuse=reuse,
        )

    def _release_idle(self) -> list[Effect]:
        return [
            Release(trial_id=trial_id, attempt=self.trials[trial_id].attempt)
            for trial_id in self.idle
        ]

    def _conclude(self) -> list[Effect]:
        if self.finished or self.holds or (self.asking and not self.ending):
            return []
        if not self.ending and (self.queue or not self.search_ended):
            return []
        if self.paused and not self.ending:
            for trial_id in sorted(self.paused):
                self._unpause(trial_id)
            return self._go_on()
        if self.idle:
            return self._release_idle()
        self.finished = True
        if self.ending:
            return [Finish(reason=self.ending.reason, message=self.ending.message)]
        return [Finish(reason="done")]


_VERDICTS = {
    Status.RUNNING: Verdict.CONTINUE,
    Status.STOPPING: Verdict.STOP,
    Status.PAUSED: Verdict.PAUSE,
    Status.PENDING: Verdict.STOP,
    Status.ERROR: Verdict.STOP,
}


def _by_progress(trials: list[Trial]) -> list[Trial]:
    """Those that had begun first, so that a restore goes on where the run was cut."""
    return sorted(trials, key=lambda trial: (trial.attempt == 0, trial.spec.index))


def _lost(event: Exited, machine: Machine) -> Failure:
    place = machine.trials[event.trial_id].place
    return Failure(
        kind="lost",
        type_name="WorkerLost",
        message=f"the worker process {place.pid or ''} {event.cause}".replace("  ", " "),
        pid=place.pid or None,
        hostname=place.hostname,
    )
