"""Handles nodes that join, announce their end, and leave."""

from __future__ import annotations

from holdfast.scheduler.effects import Effect, Preempt, Release
from holdfast.scheduler.events import (
    EndOrdered,
    NodeJoined,
    NodeLeaving,
    NodeLeft,
    NodesSettled,
)
from holdfast.scheduler.placing import impossible
from holdfast.scheduler.state import State
from holdfast.scheduler.stopping import end, fill_or_finish
from holdfast.trial.errors import InvalidTransition
from holdfast.trial.trial import Status, evolve


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
        state.ask_again({trial_id} - state.placement.unanswered)
        return []
    waiting = {trial_id, *state.placement.unanswered}
    return fill_or_finish(state) if state.ask_again(sorted(waiting)) else []


def _end_if_impossible(state: State, missing: str = "") -> list[Effect]:
    """What nodes have may show that a trial that waits can never start. `missing`: what has not
    joined."""
    waiting = (*state.placement.queue, *sorted(state.placement.delayed))
    if state.ending or not waiting:
        return []
    text = impossible(state, (state.trials[trial_id] for trial_id in waiting))
    if text and missing:
        text = f"{text}. Not there: {missing}"
    return end(state, EndOrdered(reason="abort", message=text)) if text else []
