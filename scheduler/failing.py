"""Handles failed attempts and lost workers, and nodes that join, announce their end and leave.

A failed trial is retried, now or later, as long as its budget allows; otherwise it ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from holdfast.scheduler.effects import Effect, Preempt, Release, Wait, Warn
from holdfast.scheduler.events import (
    EndOrdered,
    EndReason,
    Exited,
    NodeJoined,
    NodeLeaving,
    NodeLeft,
    NodesSettled,
    Raised,
    WaitEnded,
)
from holdfast.scheduler.launching import can_shrink, impossible
from holdfast.scheduler.placement import WaitsFor
from holdfast.scheduler.policy import TrialEnded
from holdfast.scheduler.state import State
from holdfast.scheduler.stopping import end, fill_or_finish, observe, release_origin
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import OF_THE_PROCESS, Failure, InvalidTransition, lost_worker
from holdfast.trial.events import Errored, Interrupted, Retried, Returned, Shrunk
from holdfast.trial.trial import Budget, Status, Trial, evolve

# The kinds of failures with their own budgets; the user's code causes all others.
_BUDGETS: Mapping[str, Budget] = {
    "lost": Budget.LOST_WORKERS,
    "hang": Budget.LOST_WORKERS,
    "memory": Budget.OUT_OF_MEMORY,
    "preempted": Budget.PREEMPTIONS,
}


def budget_of(failure: Failure, config: FailureConfig) -> Budget | None:
    """The budget that the failure counts against; None if it counts against none.

    An unreadable checkpoint is not a failure of the trial, and each can be lost only once.
    """
    if failure.kind == "checkpoint":
        return None
    own = _BUDGETS.get(failure.kind, Budget.FAILURES)
    return Budget.FAILURES if limit_of(own, config) is None else own


def may_retry(trial: Trial, budget: Budget, config: FailureConfig) -> bool:
    """True if the budget allows another attempt."""
    limit = limit_of(budget, config)
    return limit == -1 or limit is None or budget.spent(trial) < limit


def limit_of(budget: Budget, config: FailureConfig) -> int | None:
    """How many failures of this kind are retried: -1 for all; None if the budget is not set."""
    limit: int | None = getattr(config, f"max_{budget}")
    return limit


def wait_s(trial: Trial, config: FailureConfig, seed: int) -> float:
    """Seconds until a failed trial may start again: exponential backoff with jitter.

    Replaying the journal must give the same result, so the jitter is drawn from values that it
    holds.
    """
    if not config.retry_wait_s:
        return 0.0
    doubled = config.retry_wait_s * 2.0 ** min(max(trial.setbacks - 1, 0), 62)
    drawn = zlib.crc32(f"{seed} {trial.trial_id} {trial.attempt}".encode()) / 2**32
    return min(doubled, config.longest_retry_wait_s) * (0.5 + drawn / 2)


def on_node_joined(state: State, event: NodeJoined) -> list[Effect]:
    """Start trials on the node. Raises InvalidTransition if a node has had its name before."""
    cluster = state.cluster
    if cluster.knows(event.node):
        raise InvalidTransition(f"the node {event.node}, whose name is taken", event)
    is_new = cluster.join(
        event.node,
        event.resources,
        kind=event.kind,
        hostname=event.hostname,
        address=event.address,
        now=state.now,
    )
    for trial_id in state.shrunk:
        state.trials[trial_id] = evolve(state.trials[trial_id], shrunk_until=0.0)
    state.shrunk.clear()
    effects: list[Effect] = []
    if is_new:
        effects += _end_if_impossible(state)
    return [*effects, *fill_or_finish(state)]


def on_nodes_settled(state: State, event: NodesSettled) -> list[Effect]:
    """From now on the nodes that have joined show what the cluster has."""
    state.cluster.settle()
    return [*_end_if_impossible(state, event.missing), *fill_or_finish(state)]


def on_node_leaving(state: State, event: NodeLeaving) -> list[Effect]:
    """Let the trials there save and end; start no other."""
    if not state.cluster.is_open(event.node):
        return []
    why = f"node {event.node} leaves ({event.why})" if event.why else f"node {event.node} leaves"
    effects: list[Effect] = [
        Preempt(trial_id=trial_id, attempt=state.trials[trial_id].attempt, why=why)
        for trial_id in _to_preempt(state, event.node)
    ]
    state.cluster.close(event.node, event.why)
    effects += [
        Release(trial_id=trial_id, attempt=state.trials[trial_id].attempt)
        for trial_id in state.placement.recall_idle(event.node)
    ]
    return [*effects, *fill_or_finish(state)]


def on_node_left(state: State, event: NodeLeft) -> list[Effect]:
    """Forget the node before its workers end, so that nothing is given back to it."""
    if event.node not in state.cluster.nodes:
        return []
    state.cluster.lose(event.node, event.cause, state.now)
    state.placement.recall_idle(event.node)
    state.ask_again(list(state.placement.queue))
    return fill_or_finish(state)


def _to_preempt(state: State, node: str) -> list[str]:
    """The trials on this node, without those that already have the order."""
    if state.ending is not None and state.ending.reason == "preempted":
        return []
    return [
        trial_id
        for trial_id, held in state.placement.holds.items()
        if state.trials[trial_id].status in (Status.STARTING, Status.RUNNING)
        and held.is_on(node)
        and not state.cluster.goes(held)
    ]


def on_answered(state: State, trial_id: str, *, may_start: bool = True) -> list[Effect]:
    """It is known now whether a checkpoint of the trial is in storage: start what waited for
    this."""
    if not may_start:
        if state.placement.waits.get(trial_id) is not WaitsFor.CHECKPOINT:
            state.ask_again([trial_id])
        return []
    waiting = {trial_id, *state.placement.waiting_for(WaitsFor.CHECKPOINT)}
    return fill_or_finish(state) if state.ask_again(sorted(waiting)) else []


def _end_if_impossible(state: State, missing: str = "") -> list[Effect]:
    """End the run if there can be no room for one of the waiting trials, on any nodes. `missing`:
    what has not joined."""
    waiting = (*state.placement.queue, *state.placement.waiting_for(WaitsFor.RETRY))
    if state.ending or not waiting:
        return []
    text = impossible(state, (state.trials[trial_id] for trial_id in waiting))
    if text and missing:
        text = f"{text}. Not there: {missing}"
    return end(state, EndOrdered(reason="abort", message=text)) if text else []


def on_raised(state: State, event: Raised) -> list[Effect]:
    held = state.placement.holds.get(event.trial_id)
    return _on_failure(state, event, node_goes=held is not None and state.cluster.goes(held))


def _on_failure(state: State, event: Raised, *, node_goes: bool) -> list[Effect]:
    """`node_goes`: the trial has a place on a node that has left or will leave."""
    if _could_not_save(state, event):
        return _fail(state, event.trial_id, event.failure)
    if not state.is_current(event.trial_id, event.attempt):
        return []
    if state.trials[event.trial_id].status is Status.STOPPING:
        # An error while the attempt stops changes nothing.
        state.move(Returned(trial_id=event.trial_id, attempt=event.attempt))
        return observe(state, TrialEnded(trial_id=event.trial_id))
    if _is_of_the_end(state, event.failure):
        # What ends the script may also kill its workers, which is not a failure of their trials.
        state.move(Interrupted(trial_id=event.trial_id, why=state.why_interrupted()))
        return []
    effects = _fail(state, event.trial_id, event.failure, node_goes=node_goes)
    if event.failure.is_no_room and event.failure.node in state.cluster.nodes:
        # Its next trials would fail, too. Its files go with its agent, and another one follows.
        full = NodeLeaving(node=event.failure.node, why="its disk is full")
        effects += on_node_leaving(state, full)
    return effects


def on_exit(state: State, event: Exited) -> list[Effect]:
    """Free the worker's resources; if the attempt had not ended, its worker was lost."""
    if event.attempt != state.trials[event.trial_id].attempt:
        return []
    held = state.placement.leave(event.trial_id)
    effects: list[Effect] = []
    if state.is_current(event.trial_id, event.attempt):
        place = state.trials[event.trial_id].place
        is_taken = event.kind == "lost" and held is not None and state.cluster.took(held)
        kind = "preempted" if is_taken else event.kind
        nodes = place.nodes or (held.nodes if held is not None else ())
        failure = lost_worker(
            kind,
            event.cause,
            pid=place.pid,
            hostname=place.hostname,
            node=nodes[0] if nodes else "",
        )
        raised = Raised(trial_id=event.trial_id, attempt=event.attempt, failure=failure)
        node_goes = held is not None and state.cluster.goes(held)
        effects += _on_failure(state, raised, node_goes=node_goes)
    state.freed(event.trial_id)
    return effects + fill_or_finish(state)


def on_wait_ended(state: State, event: WaitEnded) -> list[Effect]:
    if event.attempt != state.trials[event.trial_id].attempt:
        return []
    if state.placement.waits.get(event.trial_id) is WaitsFor.RETRY:
        del state.placement.waits[event.trial_id]
    state.enqueue(event.trial_id)
    return fill_or_finish(state)


def _could_not_save(state: State, event: Raised) -> bool:
    """True if a trial failed to save the checkpoint that it should pause with."""
    trial = state.trials[event.trial_id]
    is_paused = trial.status is Status.PAUSED and trial.attempt == event.attempt
    return is_paused and state.spec.saves_when_told and trial.origin is None


def _is_of_the_end(state: State, failure: Failure) -> bool:
    """True if the failure is part of the run's end.

    When a whole job ends, user code may fail because programs that it uses have ended first.
    """
    if state.ending is None:
        return False
    return state.ending.reason == "preempted" or failure.kind in OF_THE_PROCESS


def _fail(
    state: State, trial_id: str, failure: Failure, *, node_goes: bool = False
) -> list[Effect]:
    config, trial = state.spec.failure, state.trials[trial_id]
    if can_shrink(trial, failure):
        return _shrink(state, trial, failure, node_goes=node_goes)
    budget = budget_of(failure, config)
    if budget is None or may_retry(trial, budget, config):
        retried = state.move(Retried(trial_id=trial_id, failure=failure, budget=budget))
        effects = release_origin(state, trial) if retried.origin is None else []
        return effects if budget is None else [*effects, *_delay(state, retried)]
    state.move(Errored(trial_id=trial_id, failure=failure, budget=budget))
    effects = [*release_origin(state, trial), *_end_for_errors(state, trial_id, failure)]
    return effects + observe(state, TrialEnded(trial_id=trial_id))


def _shrink(state: State, trial: Trial, failure: Failure, *, node_goes: bool) -> list[Effect]:
    """Continue with fewer workers. If their node goes, it is known what is left."""
    until = state.now + (0.0 if node_goes else state.spec.failure.lost_worker_absence_s)
    state.move(Shrunk(trial_id=trial.trial_id, failure=failure, until=until))
    if state.cluster and not node_goes:
        state.shrunk.add(trial.trial_id)
    how = "with the workers that fit on other nodes" if node_goes else "with one worker fewer"
    why = f"({failure.on_node}) {failure.headline}" if failure.node else failure.headline
    return [Warn(text=f"{trial.spec.name} continues {how}: {why}")]


def _delay(state: State, trial: Trial) -> list[Effect]:
    seconds = wait_s(trial, state.spec.failure, state.spec.seed)
    if not seconds:
        return []
    state.placement.waits[trial.trial_id] = WaitsFor.RETRY
    return [Wait(trial_id=trial.trial_id, attempt=trial.attempt, seconds=seconds)]


def _end_for_errors(state: State, trial_id: str, failure: Failure) -> list[Effect]:
    """End the run if more trials have errored than its settings allow."""
    config = state.spec.failure
    most = config.max_errored_trials
    reason: EndReason
    if config.fail_fast:
        reason, why = "fail_fast", " and fail_fast is set"
    elif most is not None and state.errored - state.errored_before > most:
        reason, why = "errored", f", which is one more than max_errored_trials={most} allows"
    else:
        return []
    message = f"trial {trial_id} failed{why}: {failure.headline}. The other trials can be resumed"
    return end(state, EndOrdered(reason=reason, message=message))
