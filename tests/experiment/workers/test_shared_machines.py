"""Several experiments on the same machines: none gets what another one holds."""

from __future__ import annotations

import pytest

from holdfast.experiment.machine.fair_share import CapacityRequest
from holdfast.experiment.workers.shared_machines import RunMachines, SharedMachines
from holdfast.trial.resources import Allocation, Place

RESOURCES = {"CPU": 2.0, "GPU": 2.0}


class Run:
    """A run with a node on each of these hosts, whose trials ask for one GPU each."""

    def __init__(self, shared: SharedMachines, *hosts: str) -> None:
        self.shares = RunMachines(shared)
        self.granted: list[Allocation] = []
        self.shared_with = [self.joins(host) for host in hosts]

    def joins(self, host: str, cpus: float = 2.0) -> bool:
        return self.shares.join(host, host, ["0", "1"], {**RESOURCES, "CPU": cpus})

    def take(self, *places: tuple[str, int]) -> Allocation | CapacityRequest:
        """A GPU with this number on each of these nodes."""
        held = tuple([Place(node=n, amounts={"GPU": 1.0}, gpus=(gpu,)) for n, gpu in places])
        return self.shares.take(Allocation(amounts={}, places=held), self.granted.append)

    def held(self, *places: tuple[str, int]) -> Allocation:
        taken = self.take(*places)
        assert isinstance(taken, Allocation)
        return taken

    def waits(self, *places: tuple[str, int]) -> CapacityRequest:
        taken = self.take(*places)
        assert isinstance(taken, CapacityRequest)
        return taken


def gpus(allocation: Allocation) -> list[tuple[int, ...]]:
    return [place.gpus for place in allocation.places]


def test_no_gpu_is_given_to_two_runs() -> None:
    shared = SharedMachines()
    first, second = Run(shared, "a"), Run(shared, "a")
    assert (first.shared_with, second.shared_with) == ([False], [True])
    one = first.held(("a", 0))
    assert gpus(second.held(("a", 0))) == [(1,)]
    second.waits(("a", 0))
    first.shares.give_back(one)
    assert [gpus(allocation) for allocation in second.granted] == [[(0,)]]


def test_all_places_are_held_or_none() -> None:
    shared = SharedMachines()
    first, second = Run(shared, "a", "b"), Run(shared, "a", "b")
    both = [first.held(("b", 0)), first.held(("b", 1))]
    waiting = second.waits(("a", 0), ("b", 0))
    assert second.shares.cancel(waiting)
    first.held(("a", 0))
    second.waits(("a", 0), ("b", 0))
    first.shares.give_back(both[0])
    assert [gpus(allocation) for allocation in second.granted] == [[(1,), (0,)]]


def test_who_waits_for_one_machine_does_not_keep_others_from_another() -> None:
    shared = SharedMachines()
    first, second = Run(shared, "a", "b"), Run(shared, "a", "b")
    held = [first.held(("a", 0)), first.held(("a", 1))]
    waiting = second.waits(("a", 0))
    second.held(("b", 0))
    third = second.waits(("a", 1))
    assert second.shares.cancel(waiting)
    first.shares.give_back(held[0])
    assert [gpus(allocation) for allocation in second.granted] == [[(0,)]]
    assert not second.shares.cancel(third)


def test_a_node_that_comes_back_is_the_same_machine() -> None:
    shared = SharedMachines()
    first = Run(shared, "a")
    lost = first.held(("a", 0))
    first.shares.leave("a")
    first.shares.give_back(lost)
    assert not first.shares.join("a-2", "a", ["0", "1"], RESOURCES), "no other run is there"
    second = Run(shared, "a")
    assert second.shared_with == [True]
    second.held(("a", 0))
    assert gpus(first.held(("a-2", 0))) == [(1,)]


@pytest.mark.parametrize("is_first_there", [True, False])
def test_what_was_on_its_way_to_a_run_that_ended_meanwhile_is_free_again(
    is_first_there: bool,
) -> None:
    """The thread of one run grants it, and that of the other hears of it only later."""
    shared = SharedMachines()
    first, second = Run(shared, "a"), Run(shared, "a")
    held = [first.held(("a", 0)), first.held(("a", 1))]
    waiting = second.waits(("a", 0))
    for one in held:
        first.shares.give_back(one)
    assert not second.shares.cancel(waiting)
    second.shares.close()
    if not is_first_there:
        first.shares.close()
    third = Run(shared, "a")
    assert third.shared_with == [is_first_there]
    third.held(("a", 0))
    late = third.waits(("a", 0))
    second.shares.give_back(second.granted[0])
    assert not third.shares.cancel(late)
    assert [gpus(allocation) for allocation in third.granted] == [[(0,)]]
