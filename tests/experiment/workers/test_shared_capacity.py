"""Several experiments in one process: one waits for the resources that another holds."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.experiment.machine.fair_share import CapacityRequest
from holdfast.experiment.workers.shared_capacity import SharedCapacity, shared
from holdfast.trial.resources import Allocation


class Asking:
    """Takes resources, and records those granted later."""

    def __init__(self, capacity: SharedCapacity) -> None:
        self.capacity = capacity
        self.granted: list[Allocation] = []

    def take(self, amounts: Mapping[str, float]) -> Allocation | CapacityRequest:
        return self.capacity.take(amounts, self.granted.append)

    def held(self, amounts: Mapping[str, float]) -> Allocation:
        taken = self.take(amounts)
        assert isinstance(taken, Allocation)
        return taken

    def waits(self, amounts: Mapping[str, float]) -> CapacityRequest:
        taken = self.take(amounts)
        assert isinstance(taken, CapacityRequest)
        return taken


def test_what_is_held_is_granted_once_it_is_given_back() -> None:
    asking = Asking(SharedCapacity({"CPU": 1}))
    first = asking.held({"CPU": 1})
    asking.waits({"CPU": 1})
    assert asking.granted == []
    asking.capacity.give_back(first)
    assert [allocation.amounts for allocation in asking.granted] == [{"CPU": 1}]


def test_a_large_request_is_not_starved_by_small_ones_that_come_later() -> None:
    asking = Asking(SharedCapacity({"CPU": 2}))
    small = asking.held({"CPU": 1})
    asking.waits({"CPU": 2})
    asking.waits({"CPU": 1})
    asking.capacity.give_back(small)
    assert [allocation.amounts for allocation in asking.granted] == [{"CPU": 2}]


def test_who_needs_nothing_waits_for_no_one() -> None:
    asking = Asking(SharedCapacity({"CPU": 1}))
    asking.held({"CPU": 1})
    asking.waits({"CPU": 1})
    asking.held({"CPU": 0})
    asking.held({})


def test_a_request_that_is_taken_back_lets_the_next_one_pass() -> None:
    asking = Asking(SharedCapacity({"CPU": 2}))
    asking.held({"CPU": 1})
    large = asking.waits({"CPU": 2})
    asking.waits({"CPU": 1})
    assert asking.capacity.cancel(large)
    assert [allocation.amounts for allocation in asking.granted] == [{"CPU": 1}]
    assert not asking.capacity.cancel(large)


def test_each_experiment_gets_gpus_that_no_other_has() -> None:
    asking = Asking(SharedCapacity({"CPU": 8, "GPU": 2}))
    assert asking.held({"GPU": 1}).gpus != asking.held({"GPU": 1}).gpus


def test_experiments_that_count_on_the_same_resources_share_them() -> None:
    one = shared({"CPU": 2})
    assert shared({"CPU": 2}) is one
    assert shared({"CPU": 3}) is not one
