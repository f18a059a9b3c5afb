"""Counting a machine's resources: never more is given out than there is, and the sum is right."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.scheduler.capacity import Capacity
from holdfast.trial.resources import Allocation

AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "CPU": st.floats(0, 3) | st.integers(0, 3),
        "GPU": st.sampled_from([0, 0.1, 0.25, 1 / 3, 0.5, 1, 1.5, 2]),
        "licence": st.integers(0, 2),
    },
)


def test_ten_tenths_are_one_and_no_eleventh_fits() -> None:
    capacity = Capacity({"CPU": 1})
    held = [capacity.take({"CPU": 0.1}) for _ in range(10)]
    assert None not in held
    assert capacity.take({"CPU": 0.1}) is None
    for allocation in held:
        assert allocation is not None
        capacity.give_back(allocation)
    assert capacity.free == {"CPU": 1}


def test_three_thirds_of_a_gpu_share_it_and_a_fourth_does_not() -> None:
    capacity = Capacity({"GPU": 1})
    assert [capacity.take({"GPU": 1 / 3}) for _ in range(4)][3] is None


def test_a_part_of_a_gpu_goes_to_the_fullest_one_that_has_room() -> None:
    capacity = Capacity({"GPU": 3})
    taken = [capacity.take({"GPU": share}) for share in (0.6, 0.5, 0.4, 0.5, 0.2)]
    assert [allocation.gpus for allocation in taken if allocation] == [
        (0,),
        (1,),
        (0,),
        (1,),
        (2,),
    ]
    assert capacity.free_gpus == (0, 0, 0.8)


def test_whole_gpus_are_not_shared() -> None:
    capacity = Capacity({"GPU": 2})
    assert capacity.take({"GPU": 0.1}) is not None
    assert capacity.take({"GPU": 2}) is None
    assert capacity.take({"GPU": 1}) == Allocation(amounts={"GPU": 1}, gpus=(1,))


@pytest.mark.parametrize(
    ("amounts", "fits"),
    [
        ({"CPU": 4, "GPU": 2}, True),
        ({"CPU": 4.1}, False),
        ({"GPU": 3}, False),
        ({"GPU": 1.5}, False),
        ({"TPU": 1}, False),
        ({"TPU": 0}, True),
        ({}, True),
    ],
)
def test_whether_a_request_can_ever_be_met(amounts: dict[str, float], fits: bool) -> None:
    capacity = Capacity({"CPU": 4, "GPU": 2})
    capacity.take({"CPU": 4, "GPU": 2})
    assert capacity.ever_fits(amounts) is fits


def test_an_amount_too_small_to_be_counted_counts_as_nothing() -> None:
    capacity = Capacity({"CPU": 1})
    held = capacity.take({"TPU": 0.00001, "CPU": 0.00001, "GPU": 0.00001})
    assert held is not None
    capacity.give_back(held)
    assert capacity.free == {"CPU": 1}


@given(st.lists(AMOUNTS, max_size=12), st.data())
def test_whatever_is_taken_in_whatever_order_it_adds_up(
    requests: list[dict[str, Any]], data: st.DataObject
) -> None:
    total = {"CPU": 4, "GPU": 2, "licence": 3}
    capacity = Capacity(total)
    held = [taken for request in requests if (taken := capacity.take(request)) is not None]
    assert all(amount >= 0 for amount in (*capacity.free.values(), *capacity.free_gpus))
    for allocation in data.draw(st.permutations(held)):
        capacity.give_back(allocation)
    assert capacity.free == total
    assert capacity.free_gpus == (1, 1)
