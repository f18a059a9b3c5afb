"""A rank's part of a dataset: epochs, and resuming in the middle of one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import data
from holdfast.trial.errors import InvalidConfig


def ids(batch: dict[str, Any]) -> list[int]:
    return [int(number) for number in batch["id"]]


@given(
    count=st.integers(6, 40),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    batch=st.integers(1, 4),
    shuffled=st.booleans(),
    choose=st.data(),
)
def test_however_often_it_is_killed_no_row_of_an_epoch_is_seen_twice(
    count: int, sizes: list[int], batch: int, shuffled: bool, choose: st.DataObject
) -> None:
    ds = data.range(count).random_shuffle(seed=5) if shuffled else data.range(count)
    state: dict[str, Any] | None = None
    seen: Counter[int] = Counter()
    for at, ranks in enumerate(sizes):
        group = [ds.deal(rank, ranks) for rank in range(ranks)]
        for one in group:
            if state is not None:
                one.load_state_dict(json.loads(json.dumps(state)))
        is_last = at == len(sizes) - 1
        passes = [iter(one.iter_batches(batch_size=batch)) for one in group]
        taken = 10**6 if is_last else choose.draw(st.integers(0, 5))
        for _ in range(taken):
            step = [next(one, None) for one in passes]
            if step[0] is None:
                assert set(map(type, step)) == {type(None)}
                break
            seen.update(number for found in step if found for number in ids(found))
        states = [one.state_dict() for one in group]
        assert all(one == states[0] for one in states)
        if states[0]["epoch"]:
            break
        state = states[0]
    assert sorted(seen) == list(range(count))
    # Only the padding at the end is repeated: of the last group, or of one that reached the end.
    assert sum(seen.values()) - count < max(sizes)


def test_every_for_is_an_epoch() -> None:
    rows = data.range(8).random_shuffle(seed=0).iterator()
    batches = rows.iter_batches(batch_size=8)
    epochs = [ids(batch) for _ in range(3) for batch in batches]
    assert rows.epoch == 3
    rows.set_epoch(1)
    assert ids(next(iter(batches))) == epochs[1]
    # An interrupted pass is over.
    assert ids(next(iter(batches))) == epochs[2]
    rows.set_epoch(2)
    assert ids(next(iter(batches))) == epochs[2]


def test_a_state_at_the_end_of_an_epoch_begins_the_next_one() -> None:
    rows = data.range(6).iterator()
    assert len(list(rows.iter_batches(batch_size=2))) == 3
    again = data.range(6).iterator()
    again.load_state_dict(rows.state_dict())
    assert again.epoch == 1
    assert len(list(again.iter_batches(batch_size=2))) == 3


def test_naming_the_epoch_that_was_left_off_in_forgets_nothing() -> None:
    rows = data.range(6).iterator()
    next(iter(rows.iter_batches(batch_size=2)))
    again = data.range(6).iterator()
    again.load_state_dict(rows.state_dict())
    again.set_epoch(0)
    assert [ids(batch) for batch in again.iter_batches(batch_size=2)] == [[2, 3], [4, 5]]
    again.set_epoch(0)
    assert len(list(again.iter_batches(batch_size=2))) == 3


def test_a_state_counts_what_the_loop_was_given_and_not_what_was_fetched_ahead() -> None:
    rows = data.range(20).map_batches(lambda batch: batch).iterator()
    batches = iter(rows.iter_batches(batch_size=3, prefetch_batches=4))
    next(batches)
    assert rows.state_dict()["dealt"] == [[1, 3]]
    rows.load_state_dict(rows.state_dict())
    one = iter(rows.iter_rows())
    assert [next(one)["id"], next(one)["id"]] == [3, 4]
    assert rows.state_dict()["dealt"] == [[1, 3], [1, 2]]


def test_with_drop_last_all_ranks_have_only_whole_batches() -> None:
    for count in (9, 10, 11):
        hands = [
            [ids(batch) for batch in data.range(count).deal(rank, 2).iter_batches(
                batch_size=2, drop_last=True)]
            for rank in range(2)
        ]  # fmt: skip
        assert [[len(batch) for batch in hand] for hand in hands] == [[2, 2]] * 2


def test_a_part_says_how_many_rows_it_has_and_can_be_had_as_a_dataset() -> None:
    parts = [data.range(7).deal(rank, 2) for rank in range(2)]
    assert [part.count() for part in parts] == [4, 4]
    assert [part.materialize().take() for part in parts] == [
        [{"id": number} for number in numbers] for numbers in ([0, 1, 2], [3, 4, 5, 6])
    ]
    assert parts[0].schema().names == ["id"]


# -- bad input ------------------------------------------------------------------------------------


def test_a_state_of_another_dataset_is_refused() -> None:
    rows = data.range(6).iterator()
    with pytest.raises(InvalidConfig, match="dataset with 5 rows, but this one has 6"):
        rows.load_state_dict(data.range(5).iterator().state_dict())


def test_an_epoch_does_not_continue_in_another_order() -> None:
    rows = data.range(6).random_shuffle(seed=0).iterator()
    next(iter(rows.iter_batches(batch_size=2)))
    again = data.range(6).random_shuffle(seed=1).iterator()
    again.load_state_dict(rows.state_dict())
    with pytest.raises(InvalidConfig, match="rows would be seen twice: shuffle with the same"):
        list(again.iter_batches(batch_size=2))
    again.set_epoch(1)
    assert len(list(again.iter_batches(batch_size=2))) == 3


def test_a_dataset_that_is_empty_or_too_small_is_not_dealt() -> None:
    with pytest.raises(InvalidConfig, match="it has no rows"):
        data.from_items([]).deal(0, 1)
    with pytest.raises(InvalidConfig, match="2 rows, fewer than the 3 workers that share it"):
        data.range(2).deal(0, 3)
