"""The state machine of an experiment: it takes an event and returns effects.

`Machine.handle` makes every decision: which trial starts next, which report ends a trial, which
failure is retried, which checkpoint is deleted. It performs none of them. Replaying the journal's
events through it restores an experiment, and a virtual clock simulates one.
"""

from __future__ import annotations

from typing import Any, assert_never

from holdfast.scheduler.codec import restore_recalled, restore_state
from holdfast.scheduler.effects import Effect, Release
from holdfast.scheduler.events import (
    Begun,
    CheckpointLost,
    ConfigAdded,
    ConfigRefused,
    EndOrdered,
    Event,
    Exited,
    ExperimentSpec,
    LimitChanged,
    NodeJoined,
    NodeLeaving,
    NodeLeft,
    NodesSettled,
    NoteWritten,
    PauseRequested,
    Raised,
    Recalled,
    Resumed,
    ResumeRequested,
    SamplesAdded,
    SchedulerAnswered,
    SearchEnded,
    SearchWaits,
    StopperAnswered,
    Suggested,
    SuggestedAhead,
    TrialStopOrdered,
    WaitEnded,
)
from holdfast.scheduler.failing import (
    on_answered,
    on_exit,
    on_node_joined,
    on_node_leaving,
    on_node_left,
    on_nodes_settled,
    on_raised,
    on_wait_ended,
)
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.scheduler.placement import Placement
from holdfast.scheduler.placing import LEAST_PACE_S, impossible
from holdfast.scheduler.policy import (
    Answers,
    NoMoreTrials,
    TrialAdded,
    TrialEnded,
    TrialScheduler,
)
from holdfast.scheduler.reporting import (
    on_adopted,
    on_committed,
    on_report,
    on_saved,
    on_scheduler,
    on_stopper,
)
from holdfast.scheduler.resuming import on_resumed
from holdfast.scheduler.state import Expected, State
from holdfast.scheduler.steering import on_order, on_refused
from holdfast.scheduler.stopping import end, fill_or_finish, observe
from holdfast.trial.errors import ImpossibleRecord, TuneError
from holdfast.trial.events import (
    Adopted,
    Committed,
    ConstraintViolated,
    Dropped,
    Measured,
    Reported,
    Returned,
    Saved,
    Started,
    Unread,
)
from holdfast.trial.trial import Trial


class Machine(State):
    """All trials, their resources and the queue. Only `handle` and `replay` change it."""

    def handle(self, event: Event, *, now: float) -> list[Effect]:
        """Handle an event that happened at `now` (seconds since 1970), and return its effects.

        Raises InvalidTransition if the event cannot follow the earlier ones.
        """
        self._pass_time(event, now)
        self.moved, self.answers = {}, []
        match event:
            case Reported():
                return on_report(self, event)
            case Started() | Returned():
                return self._on_progress(event)
            case Exited():
                return on_exit(self, event)
            case Measured() | ConstraintViolated() | Unread():
                self.move(event)
                return []
            case WaitEnded():
                return on_wait_ended(self, event)
            case Suggested():
                return self._on_suggestion(event)
            case SuggestedAhead():
                self.asking_ahead = False
                self.ahead = (*self.ahead, event.suggestion)
                self._note_pace(event.suggestion)
                return fill_or_finish(self)
            case Raised():
                return on_raised(self, event)
            case Committed():
                return on_committed(self, event)
            case Saved():
                return on_saved(self, event)
            case StopperAnswered():
                return on_stopper(self, event)
            case Adopted():
                return on_adopted(self, event)
            case SchedulerAnswered():
                return on_scheduler(self, event)
            case SearchEnded():
                self.asking = self.search_waits = False
                self.search_ended = self.is_complete = True
                return [*observe(self, NoMoreTrials()), *fill_or_finish(self)]
            case SearchWaits():
                self.search_waits = True
                return fill_or_finish(self)
            case EndOrdered():
                return [*end(self, event), *fill_or_finish(self)]
            case CheckpointLost():
                self.move(Dropped(trial_id=event.trial_id, index=event.index))
                return on_answered(self, event.trial_id, may_start=event.in_run)
            case NodeJoined():
                return on_node_joined(self, event)
            case NodeLeaving():
                return on_node_leaving(self, event)
            case NodeLeft():
                return on_node_left(self, event)
            case NodesSettled():
                return on_nodes_settled(self, event)
            case (
                TrialStopOrdered()
                | PauseRequested()
                | ResumeRequested()
                | LimitChanged()
                | SamplesAdded()
                | ConfigAdded()
                | NoteWritten()
            ):
                return on_order(self, event)
            case ConfigRefused():
                return on_refused(self, event)
            case Begun():
                return self._on_begun(event)
            case Resumed():
                return on_resumed(self, event)
            case Recalled():
                return self._on_recalled(event)
            case _:
                assert_never(event)

    def replay(self, event: Event, *, now: float, answers: Answers = ()) -> list[Effect]:
        """Handle an event from a journal; `answers` are the decisions recorded with it.

        The policy sees the event, to rebuild its state, but the recorded decisions are used.
        Raises UnreadableRecord or InvalidTransition if the event cannot follow the earlier ones.
        """
        self._recorded = iter(answers)
        try:
            return self.handle(event, now=now)
        except TuneError:
            raise
        except Exception as error:  # no run has written this record: the journal is damaged
            raise ImpossibleRecord(event, error) from error
        finally:
            self._recorded = None

    def recall(self, policy: TrialScheduler, spec: ExperimentSpec) -> bool:
        """Let a policy continue from the trials of a snapshot, without the events before it.
        `spec` is that with which the experiment began. Returns False if the policy needs them."""
        fresh = policy.begun(spec)
        if not fresh.recall(self):
            return False
        self.policy = fresh
        return True

    def _pass_time(self, event: Event, now: float) -> None:
        """Count the seconds that the experiment ran, without the gap before a restore."""
        if isinstance(event, CheckpointLost) and not event.in_run:
            return  # it belongs to that gap
        if isinstance(event, (Begun, Recalled, Resumed)):
            self.now = now
            return
        if self.now and now > self.now:
            self.active_s += now - self.now
        self.now = now

    def _on_begun(self, event: Begun) -> list[Effect]:
        self.spec, self.boot_id = event.spec, event.boot_id
        self.placement = Placement(event.capacity, cluster=Cluster(event.offer))
        self.expected = Expected(event.spec)
        self.has_all_rungs = True
        if self.policy is not None:
            self.policy = self.policy.begun(event.spec)
        return fill_or_finish(self)

    def _on_recalled(self, event: Recalled) -> list[Effect]:
        """Show the policy each trial and its status, unless it recalls what it has seen; the rows
        are lost."""
        restore_recalled(self, event)
        if self.policy is None or self.recall(self.policy, event.spec):
            return []
        self.policy = self.policy.begun(event.spec)
        for trial in self.trials.values():
            self.policy.decide(self, TrialAdded(trial_id=trial.trial_id))
            if trial.status.is_final:
                self.policy.decide(self, TrialEnded(trial_id=trial.trial_id))
        return []

    def _on_suggestion(self, event: Suggested) -> list[Effect]:
        spec = event.spec
        if spec.is_added:
            self.configs, self.asking_config = self.configs[1:], False
        else:
            self.asking = self.asking_ahead = self.search_waits = False
            self.is_complete = event.is_last
            if self.ahead and self.ahead[0].spec.trial_id == spec.trial_id:
                self.ahead = self.ahead[1:]
            else:
                self._note_pace(event)
        trial = Trial(spec=spec)
        self.add(trial)
        self.placement.wait(spec.trial_id, is_next=spec.is_added)
        effects: list[Effect] = []
        if text := impossible(self, [trial]):
            effects += end(self, EndOrdered(reason="abort", message=text))
        effects += observe(self, TrialAdded(trial_id=spec.trial_id))
        return [*effects, *fill_or_finish(self)]

    def _note_pace(self, event: Suggested) -> None:
        known_s, took_s = self.suggestion_s, event.took_s
        paced_s = known_s + (took_s - known_s) / 4 if known_s else took_s
        self.suggestion_s = paced_s if paced_s >= LEAST_PACE_S else 0.0
        self.look_ahead = event.look_ahead

    def _on_progress(self, event: Started | Returned) -> list[Effect]:
        if not self.is_current(event.trial_id, event.attempt):
            rested = self._rest(event)
            return [] if rested is None else [*rested, *fill_or_finish(self)]
        trial = self.move(event)
        effects: list[Effect] = []
        if trial.status.is_final:
            effects += observe(self, TrialEnded(trial_id=event.trial_id))
        rested = self._rest(event)
        if rested is not None or effects:
            effects += [*(rested or []), *fill_or_finish(self)]
        return effects

    def has_left(self, trial: Trial) -> bool:
        """Whether the trial has ended for good, and no worker runs it any more."""
        return trial.status.is_final and trial.trial_id not in self.placement.holds

    def _rest(self, event: Started | Returned) -> list[Effect] | None:
        """Keep the worker that returned, now idle, for another trial, or end it if its node goes.
        None if workers are not kept."""
        if not isinstance(event, Returned) or not self.spec.reuse_actors:
            return None
        trial_id, attempt = event.trial_id, event.attempt
        held = self.placement.holds.get(trial_id)
        if held is None or attempt != self.trials[trial_id].attempt:
            return None
        if self.cluster.goes(held):
            is_lost = self.cluster.has_lost(held)
            return [] if is_lost else [Release(trial_id=trial_id, attempt=attempt)]
        self.placement.rest(trial_id)
        self.freed(trial_id)
        return []


def from_snapshot(plain: Any) -> Machine:
    """The machine that a snapshot describes, without a policy. Raises UnreadableRecord."""
    machine = Machine()
    restore_state(machine, plain)
    return machine
