"""The invariants of a machine: conditions that hold after every event."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.nodes.cluster import serves
from holdfast.scheduler.placement import WaitsFor
from holdfast.trial.config import FailureConfig
from holdfast.trial.trial import Status, Trial


def check(machine: Machine) -> None:
    """Raises AssertionError, which names the trial, if the machine breaks an invariant."""
    for rule in RULES:
        rule(machine)


def _what_is_free_and_what_is_held_add_up(machine: Machine) -> None:
    expected = Capacity(machine.placement.capacity.total)
    for held in (*machine.placement.holds.values(), *machine.placement.idle.values()):
        if not held.places:
            expected.hold(held)
    free, gpus = machine.placement.capacity.free, machine.placement.capacity.free_gpus
    assert (free, gpus) == (expected.free, expected.free_gpus), (
        "free and held resources do not add up to the total"
    )
    assert all(amount >= 0 for amount in (*free.values(), *gpus)), f"oversubscribed: {free} {gpus}"


def _what_nodes_hold_and_what_is_free_there_add_up(machine: Machine) -> None:
    cluster = machine.cluster
    expected = {name: Capacity(node.resources) for name, node in cluster.nodes.items()}
    held = dict.fromkeys(cluster.nodes, 0)
    for allocation in (*machine.placement.holds.values(), *machine.placement.idle.values()):
        for place in allocation.places:
            if place.node in expected:
                expected[place.node].hold(place)
                held[place.node] += 1
    assert cluster.held == held
    assert cluster.capacities.keys() == expected.keys()
    for name, capacity in expected.items():
        assert repr(cluster.capacities[name]) == repr(capacity), f"{name} does not add up"
        free = (*capacity.free.values(), *capacity.free_gpus)
        assert all(amount >= 0 for amount in free), f"{name} is oversubscribed: {capacity}"


def _workers_are_where_their_trial_asks_for(machine: Machine) -> None:
    if not machine.cluster:
        return
    for trial in machine.trials.values():
        if trial.status.has_worker:
            held = machine.placement.holds[trial.trial_id]
            wanted = trial.spec.resources
            wanted = wanted.first(trial.bundles) if trial.bundles else wanted
            assert serves(held.places, wanted), trial.story()
    for trial_id, held in machine.placement.idle.items():
        assert not machine.cluster.goes(held), f"an idle worker of {trial_id} on a node that goes"


def _each_trial_with_a_worker_holds_what_it_asked_for(machine: Machine) -> None:
    assert not machine.placement.holds.keys() & machine.placement.idle.keys()
    for trial in machine.trials.values():
        if trial.status.has_worker:
            held = machine.placement.holds[trial.trial_id].amounts
            assert held == trial.granted.required_resources, trial.story()
    for trial_id in machine.placement.idle:
        assert machine.spec.reuse_actors
        assert not machine.trials[trial_id].status.has_worker, machine.trials[trial_id].story()


def _only_pending_trials_wait(machine: Machine) -> None:
    for trial_id in machine.placement.queue:
        assert not machine.trials[trial_id].is_held
        assert machine.trials[trial_id].status is Status.PENDING, machine.trials[trial_id].story()
        assert not machine.awaits_answer(machine.trials[trial_id])
    assert not machine.placement.queue.keys() & machine.placement.waits.keys()
    for trial_id, wait in machine.placement.waits.items():
        trial = machine.trials[trial_id]
        assert trial.status is Status.PENDING, trial.story()
        assert wait is not WaitsFor.PERSON or trial.waits_for_person, trial.story()


def _the_index_of_clones_is_right(machine: Machine) -> None:
    clones: dict[str, set[str]] = {}
    for trial in machine.trials.values():
        if trial.origin is not None and trial.awaits_copy:
            clones.setdefault(trial.origin.trial_id, set()).add(trial.trial_id)
    assert machine.clones == clones


def _only_paused_trials_resume_when_their_worker_is_gone(machine: Machine) -> None:
    assert machine.resume_when_free <= set(machine.paused)


def _no_more_run_at_once_than_allowed(machine: Machine) -> None:
    most = machine.spec.max_concurrent
    if not any(machine.trials[one].status is Status.STARTING for one in machine.moved):
        return  # a person may have lowered the limit: trials that run continue
    # Idle workers that were asked to end still hold resources, but run nothing.
    running = [trial.trial_id for trial in machine.trials.values() if trial.status.has_worker]
    assert most is None or len(running) <= most, f"{running} run at once"


def _something_is_awaited_until_all_is_finished(machine: Machine) -> None:
    if machine.finished:
        assert not machine.placement.holds, "finished, but workers hold resources"
        assert not machine.placement.idle, "finished, but idle workers are left"
        assert machine.ending or not machine.placement.queue, "finished, but trials are queued"
    elif machine.spec.experiment_id:
        placement = machine.placement
        waits = placement.waits or _awaits_a_node(machine) or machine.asking_config
        awaited = placement.holds or waits or machine.asking or machine.questions
        assert awaited, "the run hangs: no event is awaited"


def _awaits_a_node(machine: Machine) -> bool:
    """True if the first trial that waits fits on no node that is there."""
    first = next(iter(machine.placement.queue), None)
    if first is None or not machine.cluster:
        return False
    resources = machine.trials[first].spec.resources
    return not machine.placement.has_room(resources.first(resources.least_bundles))


def _checkpoints_are_in_order_and_no_more_than_wanted(machine: Machine) -> None:
    keep = machine.spec.checkpoint.num_to_keep
    for trial in machine.trials.values():
        indices = [checkpoint.index for checkpoint in trial.checkpoints]
        assert indices == sorted(set(indices)), trial.story()
        assert all(index < trial.next_checkpoint for index in indices), trial.story()
        needed = machine.needed_of(trial.trial_id)
        committed = [c for c in trial.checkpoints if c.committed and c.index not in needed]
        # Besides the best, the newest is kept, and the newest in storage.
        more = 1 + any(known.stays_here for known in committed)
        assert keep is None or len(committed) <= keep + more, trial.story()


def _failures_are_within_the_budget(machine: Machine) -> None:
    for trial in machine.trials.values():
        _check_failures(trial, machine.spec.failure)


def _check_failures(trial: Trial, config: FailureConfig) -> None:
    limits = (
        (trial.failures, config.max_failures),
        (trial.lost_workers, config.max_lost_workers),
        (trial.out_of_memory, config.max_out_of_memory),
        (trial.preemptions, config.max_preemptions),
    )
    for spent, limit in limits:
        # A kind without a separate budget counts against another.
        assert limit == -1 or spent <= (-1 if limit is None else limit) + 1, trial.story()
    if trial.status is Status.ERROR:
        assert trial.error is not None, trial.story()
    if trial.status.has_worker:
        assert trial.attempt > 0, trial.story()


RULES: tuple[Callable[[Machine], None], ...] = (
    _what_is_free_and_what_is_held_add_up,
    _what_nodes_hold_and_what_is_free_there_add_up,
    _workers_are_where_their_trial_asks_for,
    _each_trial_with_a_worker_holds_what_it_asked_for,
    _only_pending_trials_wait,
    _the_index_of_clones_is_right,
    _only_paused_trials_resume_when_their_worker_is_gone,
    _no_more_run_at_once_than_allowed,
    _something_is_awaited_until_all_is_finished,
    _checkpoints_are_in_order_and_no_more_than_wanted,
    _failures_are_within_the_budget,
)
