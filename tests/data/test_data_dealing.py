"""The places of an epoch that each rank gets, whatever happens on the way."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.order import Order, Ranges, Shuffle, left_of, length, permutation, share

RANKS = st.integers(1, 6)


def places(ranges: Ranges) -> list[int]:
    return list(chain.from_iterable(range(start, stop) for start, stop in ranges))


@given(count=st.integers(0, 60), stages=st.lists(st.tuples(RANKS, st.integers(0, 12)), max_size=4))
def test_what_is_left_and_what_was_given_are_the_whole_epoch(
    count: int, stages: list[tuple[int, int]]
) -> None:
    given: Counter[int] = Counter()
    for at, (ranks, taken) in enumerate(stages):
        left = left_of(count, stages[:at])
        hands = [places(share(left, rank, ranks)) for rank in range(ranks)]
        now = Counter(chain.from_iterable(hand[:taken] for hand in hands))
        # Repeated places come at the end of the rest, not before.
        assert taken >= len(hands[0]) or max(now.values(), default=1) == 1
        assert not set(now) & set(given)
        given += now
    rest = places(left_of(count, stages))
    assert sorted([*given, *rest]) == list(range(count))


@given(count=st.integers(0, 60), ranks=RANKS, dealt=st.lists(st.tuples(RANKS, st.integers(0, 9))))
def test_all_ranks_are_given_equally_many_and_each_place_once_except_the_padding(
    count: int, ranks: int, dealt: list[tuple[int, int]]
) -> None:
    left = left_of(count, dealt)
    hands = [places(share(left, rank, ranks)) for rank in range(ranks)]
    assert len({len(hand) for hand in hands}) == 1
    times = Counter(chain.from_iterable(hands))
    assert sorted(times) == sorted(places(left))
    again = sum(times.values()) - len(times)
    assert again == (-length(left) % ranks if times else 0)


@given(count=st.integers(0, 60), ranks=RANKS)
def test_without_padding_the_rest_is_left_out(count: int, ranks: int) -> None:
    left = left_of(count, ())
    hands = [places(share(left, rank, ranks, pads=False)) for rank in range(ranks)]
    assert {len(hand) for hand in hands} == {count // ranks}
    assert max(Counter(chain.from_iterable(hands)).values(), default=1) == 1


def test_a_rank_that_has_one_less_is_given_its_last_one_twice() -> None:
    hands = [places(share(((0, 5),), rank, 2)) for rank in range(2)]
    assert hands == [[0, 1, 2], [3, 4, 4]]
    assert [places(share(((7, 9),), rank, 3)) for rank in range(3)] == [[7], [8], [7]]


@given(
    sizes=st.lists(st.integers(0, 9), max_size=6),
    window=st.integers(1, 20),
    blocks=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_every_order_has_every_row_once(
    sizes: list[int], window: int, blocks: bool, epoch: int
) -> None:
    shuffle = Shuffle(seed=1, window=window, blocks=blocks)
    for order in (Order.of(sizes, shuffle, epoch), Order.of(sizes, None, epoch)):
        seen: list[tuple[int, int]] = []
        at = 0
        while at < sum(sizes):
            start, stop = order.stretch(at)
            assert start == at < stop <= start + (window if order.shuffle else max(sizes))
            parts = order.parts(start, stop)
            rows = [(block, row) for block, low, high in parts for row in range(low, high)]
            where = order.rows(start, stop)
            seen += rows if where is None else [rows[place] for place in where]
            at = stop
        wanted = [(block, row) for block, size in enumerate(sizes) for row in range(size)]
        assert sorted(seen) == wanted
        assert order.shuffle or seen == wanted


def test_an_order_is_the_same_for_ever() -> None:
    assert permutation(10, 0, 0, 1, 0).tolist() == FIRST
    assert permutation(10, 0, 1, 1, 0).tolist() == SECOND


FIRST = [2, 5, 0, 1, 4, 8, 7, 6, 3, 9]
SECOND = [5, 9, 0, 6, 2, 1, 8, 7, 4, 3]
