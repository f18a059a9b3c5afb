"""Splitting the samples of an epoch among ranks, also when their number changes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from holdfast.train.torch import DealingSampler


def dealt(count: int, ranks: int, **how: bool) -> list[DealingSampler]:
    from holdfast.train.torch import DealingSampler  # it is a class of torch, which takes seconds

    usual: dict[str, bool] = {"shuffle": True, **how}
    return [DealingSampler(range(count), rank=rank, ranks=ranks, **usual) for rank in range(ranks)]


@given(
    count=st.integers(1, 60),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    batch=st.integers(1, 4),
    data=st.data(),
)
def test_however_the_number_of_ranks_changes_no_sample_is_dealt_twice(
    count: int, sizes: list[int], batch: int, data: st.DataObject
) -> None:
    seen: list[int] = []
    state = {"epoch": 3, "taken": 0}
    for at, ranks in enumerate(sizes):
        group = dealt(count, ranks)
        hands = []
        for sampler in group:
            sampler.load_state_dict(state)
            hands.append(list(sampler))
        assert len({len(hand) for hand in hands}) == 1
        left = count - len(seen)
        batches = len(hands[0]) // batch
        is_last = at == len(sizes) - 1
        taken = batches if is_last else data.draw(st.integers(0, batches))
        samples = len(hands[0]) if is_last else taken * batch
        given_out = [hand[place] for place in range(samples) for hand in hands]
        # The rest is padding.
        seen += given_out[:left]
        group[0].took(samples)
        state = group[0].state_dict()
        assert state == {"epoch": 3, "taken": len(seen)}
    assert sorted(seen) == list(range(count))


def test_the_padding_is_what_was_left_first() -> None:
    hands = [list(sampler) for sampler in dealt(5, 2, shuffle=False)]
    assert hands == [[0, 2, 4], [1, 3, 0]]


def test_with_drop_last_the_rest_is_not_dealt() -> None:
    hands = [list(sampler) for sampler in dealt(5, 2, shuffle=False, drop_last=True)]
    assert hands == [[0, 2], [1, 3]]


def test_each_epoch_has_an_order_of_its_own_that_all_ranks_agree_on() -> None:
    orders = []
    for epoch in range(3):
        group = dealt(20, 2)
        for sampler in group:
            sampler.set_epoch(epoch)
        hands = [list(sampler) for sampler in group]
        assert sorted(itertools.chain(*hands)) == list(range(20))
        orders.append(hands)
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("again", [None, 1])
def test_it_continues_once_and_the_next_epoch_is_whole(again: int | None) -> None:
    (sampler,) = dealt(10, 1)
    sampler.load_state_dict({"epoch": 0, "taken": 7})
    assert len(list(sampler)) == 3
    if again is not None:
        sampler.set_epoch(again)
    assert len(list(sampler)) == 10


def test_naming_the_epoch_that_was_left_off_in_forgets_nothing() -> None:
    (sampler,) = dealt(10, 1)
    sampler.load_state_dict({"epoch": 4, "taken": 7})
    sampler.set_epoch(4)
    assert len(list(sampler)) == 3
