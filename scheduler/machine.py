"""The state machine of an experiment: it takes an event and returns effects.

`Machine.handle` makes every decision: which trial starts next, which report ends a trial, which
failure is retried, which checkpoint is deleted. It performs none of them. Replaying the journal's
events through it restores an experiment, and a virtual clock simulates one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from holdfast.scheduler.codec import restore_recalled, restore_state
from holdfast.scheduler.effects import Effect, Release
from holdfast.scheduler.events import (
    HAPPENINGS,
    Begun,
    CheckpointLost,
    ConfigRefused,
    EndOrdered,
    Event,
    Exited,
    ExperimentSpec,
    NodeJoined,
    NodeLeaving,
    NodeLeft,
    NodesSettled,
    Order,
    Raised,
    Recalled,
    Resumed,
    SchedulerAnswered,
    SearchEnded,
    SearchWaits,
    StopperAnswered,
    Suggested,
    SuggestedAhead,
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
from holdfast.scheduler.launching import LEAST_PACE_S, impossible
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.scheduler.placement import Placement
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
from holdfast.trial.lifecycle import dated
from holdfast.trial.trial import Trial

_BEGINNINGS = frozenset({Begun, Recalled, Resumed})


class Machine(State):
    """All trials, their resources and the queue. Only `handle` and `replay` change it."""

    def handle(self, event: Event, *, now: float) -> list[Effect]:
        """Handle an event that happened at `now` (seconds since 1970), and return its effects.

        Raises InvalidTransition if the event cannot follow the earlier ones.
        """
        self._pass_time(event, now)
        self.moved, self.answers = {}, []
        return _HANDLERS[type(event)](self, event)

    def replay(self, event: Event, *, now: float, answers: Answers = ()) -> list[Effect]:
        """Handle an event from a journal; `answers` are the decisions recorded with it.

        The policy sees the event, to rebuild its state, but the recorded decisions are used.
        Raises UnreadableRecord or InvalidTransition if the event cannot follow the earlier ones.
        """
        self._recorded = iter(answers) if answers or self.policy is not None else None
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
        """Count the seconds that the experiment ran, without the gap before a restore. Remember an
        event that people want to see."""
        kind = type(event)
        if kind in HAPPENINGS:
            self.note(event, now)
            if kind in _BEGINNINGS:
                self.now = now
                return
        elif isinstance(event, CheckpointLost) and not event.in_run:
            return  # it belongs to that gap
        if self.now and now > self.now:
            self.active_s += now - self.now
        self.now = now

    def _on_mark(self, event: Measured | ConstraintViolated | Unread) -> list[Effect]:
        self.move(event)
        return []

    def _on_suggested_ahead(self, event: SuggestedAhead) -> list[Effect]:
        self.asking_ahead = False
        self.ahead = (*self.ahead, event.suggestion)
        self._note_pace(event.suggestion)
        return fill_or_finish(self)

    def _on_search_ended(self, event: SearchEnded) -> list[Effect]:
        self.asking = self.search_waits = False
        self.search_ended = self.is_complete = True
        return [*observe(self, NoMoreTrials()), *fill_or_finish(self)]

    def _on_search_waits(self, event: SearchWaits) -> list[Effect]:
        self.search_waits = True
        return fill_or_finish(self)

    def _on_end_ordered(self, event: EndOrdered) -> list[Effect]:
        return [*end(self, event), *fill_or_finish(self)]

    def _on_checkpoint_lost(self, event: CheckpointLost) -> list[Effect]:
        self.move(Dropped(trial_id=event.trial_id, index=event.index))
        return on_answered(self, event.trial_id, may_start=event.in_run)

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
            if trial.spec.confirms:
                continue
            self.policy.decide(self, TrialAdded(trial_id=trial.trial_id))
            if trial.status.is_final:
                self.policy.decide(self, TrialEnded(trial_id=trial.trial_id))
        return []

    def _on_suggestion(self, event: Suggested) -> list[Effect]:
        spec = event.spec
        if spec.is_added:
            self.asking_config = False
            self.configs = self.configs if spec.confirms else self.configs[1:]
        else:
            self.asking = self.asking_ahead = self.search_waits = False
            self.is_complete = event.is_last
            self.outlook = event.outlook or self.outlook
            if self.ahead and self.ahead[0].spec.trial_id == spec.trial_id:
                self.ahead = self.ahead[1:]
            else:
                self._note_pace(event)
        trial = Trial(spec=spec)
        self.add(trial)
        self.placement.wait(spec.trial_id, is_next=spec.added_by_person)
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
        if isinstance(event, Started) and not trial.began_at:  # it was stopped while it started
            trial = self.trials[trial.trial_id] = dated(trial, trial, event, self.now)
        effects: list[Effect] = []
        if trial.status.is_final:
            effects += observe(self, TrialEnded(trial_id=event.trial_id))
        rested = self._rest(event)
        if rested is not None or effects:
            effects += [*(rested or []), *fill_or_finish(self)]
        return effects

    def has_left(self, trial: Trial) -> bool:
        """True if the trial has ended for good, and no worker runs it any more."""
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


_HANDLERS: dict[type, Callable[[Machine, Any], list[Effect]]] = {
    Reported: on_report,
    Started: Machine._on_progress,
    Returned: Machine._on_progress,
    Exited: on_exit,
    Raised: on_raised,
    WaitEnded: on_wait_ended,
    Committed: on_committed,
    Saved: on_saved,
    Adopted: on_adopted,
    CheckpointLost: Machine._on_checkpoint_lost,
    **dict.fromkeys((Measured, ConstraintViolated, Unread), Machine._on_mark),
    Suggested: Machine._on_suggestion,
    SuggestedAhead: Machine._on_suggested_ahead,
    SearchEnded: Machine._on_search_ended,
    SearchWaits: Machine._on_search_waits,
    StopperAnswered: on_stopper,
    SchedulerAnswered: on_scheduler,
    NodeJoined: on_node_joined,
    NodeLeaving: on_node_leaving,
    NodeLeft: on_node_left,
    NodesSettled: on_nodes_settled,
    **dict.fromkeys(get_args(Order), on_order),
    ConfigRefused: on_refused,
    EndOrdered: Machine._on_end_ordered,
    Begun: Machine._on_begun,
    Resumed: on_resumed,
    Recalled: Machine._on_recalled,
}


def from_snapshot(plain: Any) -> Machine:
    """The machine that a snapshot describes, without a policy. Raises UnreadableRecord."""
    machine = Machine()
    restore_state(machine, plain)
    return machine
