"""The checker detects each broken invariant."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.testing.invariants import RULES, check
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import CheckpointConfig
from holdfast.trial.resources import Allocation, NodeKind, Place
from holdfast.trial.trial import Origin, Status
from tests.rig.scheduler.samples import CHECKPOINT


def sound() -> Machine:
    """t0 runs, t1 waits."""
    run = Rehearsal(
        capacity={"CPU": 1},
        resources=None,
        max_concurrent=1,
        checkpoint=CheckpointConfig(num_to_keep=1),
    )
    run.suggest()
    run.suggest()
    run.start("t0")
    return run.machine


def change(machine: Machine, trial_id: str, **fields: object) -> None:
    machine.trials[trial_id] = replace(machine.trials[trial_id], **fields)  # type: ignore[arg-type]


def loses_resources(machine: Machine) -> None:
    machine.placement.capacity.give_back(Allocation(amounts={"CPU": 1}))


def oversubscribes(machine: Machine) -> None:
    more = Allocation(amounts={"CPU": 1})
    machine.placement.capacity.hold(more)
    machine.placement.holds["t1"] = more


def forgets_what_a_trial_holds(machine: Machine) -> None:
    machine.placement.holds["t0"] = Allocation(amounts={"CPU": 0.5})
    machine.placement.capacity = Capacity({"CPU": 1})
    machine.placement.capacity.hold(machine.placement.holds["t0"])


def holds_an_idle_worker_twice(machine: Machine) -> None:
    machine.placement.capacity = Capacity({"CPU": 2})
    machine.placement.idle["t0"] = machine.placement.holds["t0"]
    machine.placement.capacity.hold(Allocation(amounts={"CPU": 2}))


def queues_a_running_trial(machine: Machine) -> None:
    machine.placement.queue["t0"] = None


def misses_a_clone(machine: Machine) -> None:
    change(machine, "t1", origin=Origin(trial_id="t0", checkpoint=CHECKPOINT))


def resumes_a_trial_that_is_not_paused(machine: Machine) -> None:
    machine.resume_when_free.add("t1")


def runs_too_many(machine: Machine) -> None:
    machine.moved["t1"] = machine.trials["t1"]
    machine.placement.holds["t1"] = Allocation(amounts={"CPU": 1})
    machine.placement.capacity = Capacity({"CPU": 2})
    machine.placement.capacity.hold(Allocation(amounts={"CPU": 2}))
    machine.placement.queue.clear()
    change(machine, "t1", status=Status.STARTING, attempt=1)


def finishes_with_a_worker(machine: Machine) -> None:
    machine.finished = True


def hangs(machine: Machine) -> None:
    machine.placement.capacity = Capacity({"CPU": 1})
    machine.placement.holds = {}
    change(machine, "t0", status=Status.PENDING)
    machine.placement.queue = OrderedDict.fromkeys(["t0", "t1"])


def repeats_a_checkpoint(machine: Machine) -> None:
    change(machine, "t0", checkpoints=(CHECKPOINT, CHECKPOINT), next_checkpoint=9)


def keeps_too_many_checkpoints(machine: Machine) -> None:
    kept = tuple(replace(CHECKPOINT, index=index, committed=True) for index in range(3))
    change(machine, "t0", checkpoints=kept, next_checkpoint=9)


def tries_too_often(machine: Machine) -> None:
    change(machine, "t0", failures=2)


def errs_without_an_error(machine: Machine) -> None:
    change(machine, "t0", status=Status.ERROR)


def counts_more_on_a_node_than_its_trials_hold(machine: Machine) -> None:
    machine.placement.cluster = Cluster([NodeKind(name="k")])
    machine.cluster.join("a", {"CPU": 1}, kind="k", hostname="", address="")
    machine.cluster.hold([Place(node="a", amounts={"CPU": 1})])


def holds_less_than_it_asked_for_on_nodes(machine: Machine) -> None:
    machine.placement.cluster = Cluster([NodeKind(name="k")])


FAULTS = [
    loses_resources,
    oversubscribes,
    forgets_what_a_trial_holds,
    holds_an_idle_worker_twice,
    queues_a_running_trial,
    misses_a_clone,
    resumes_a_trial_that_is_not_paused,
    runs_too_many,
    finishes_with_a_worker,
    hangs,
    repeats_a_checkpoint,
    keeps_too_many_checkpoints,
    tries_too_often,
    errs_without_an_error,
    counts_more_on_a_node_than_its_trials_hold,
    holds_less_than_it_asked_for_on_nodes,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_machine_that_contradicts_itself_is_found_out(fault: Callable[[Machine], None]) -> None:
    machine = sound()
    machine.asking = False
    check(machine)
    fault(machine)
    with pytest.raises(AssertionError):
        check(machine)


def test_every_rule_finds_one_of_these_faults() -> None:
    found = set()
    for fault in FAULTS:
        machine = sound()
        machine.asking = False
        fault(machine)
        found |= {rule for rule in RULES if not _holds(rule, machine)}
    assert found == set(RULES)


def _holds(rule: Callable[[Machine], None], machine: Machine) -> bool:
    try:
        rule(machine)
    except AssertionError:
        return False
    return True
