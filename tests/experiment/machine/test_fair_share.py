"""Who takes what next of a machine that several experiments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.experiment.machine.fair_share import (
    Claim,
    Due,
    Member,
    Wish,
    due,
    has_room,
    total_of,
    yields,
)


def sharer(
    name: str,
    total: Mapping[str, float],
    *,
    holds: Sequence[Mapping[str, float]] = (),
    waits: Sequence[Mapping[str, float]] = (),
    since: float = 0.0,
    gpus: Sequence[str] = (),
) -> Member:
    return Member(
        pid=1,
        command="",
        experiment=name,
        shares=True,
        total={**total, **({"GPU": len(gpus)} if gpus else {})},
        uses={},
        gpus=gpus,
        holds=[Claim(amounts=amounts) for amounts in holds],
        waits=[Wish(number=n, amounts=one, since=since) for n, one in enumerate(waits)],
    )


def together(*sharers: Member) -> dict[str, Member]:
    return {one.experiment: one for one in sharers}


def granted(*sharers: Member) -> list[Due]:
    return due(together(*sharers))


def names(*sharers: Member) -> list[str]:
    return [one.name for one in granted(*sharers)]


CPU = {"CPU": 1.0}


def test_one_alone_takes_all_that_there_is() -> None:
    assert names(sharer("a", {"CPU": 2}, waits=[CPU, CPU, CPU])) == ["a", "a"]


def test_what_is_free_goes_to_the_one_that_holds_least() -> None:
    a = sharer("a", {"CPU": 4}, holds=[CPU, CPU], waits=[CPU, CPU], since=1)
    b = sharer("b", {"CPU": 4}, holds=[CPU], waits=[CPU, CPU], since=2)
    assert names(a, b) == ["b"]


def test_of_two_that_hold_as_much_the_one_that_has_waited_longer_is_first() -> None:
    a = sharer("a", {"CPU": 1}, waits=[CPU], since=2)
    b = sharer("b", {"CPU": 1}, waits=[CPU], since=1)
    assert names(a, b) == ["b"]


def test_two_come_to_half_of_the_machine_each() -> None:
    a = sharer("a", {"CPU": 4}, waits=[CPU] * 8)
    b = sharer("b", {"CPU": 4}, waits=[CPU] * 8)
    assert sorted(names(a, b)) == ["a", "a", "b", "b"]


def test_small_requests_leave_room_for_a_large_one_that_is_before_them() -> None:
    large = sharer("large", {"CPU": 4}, waits=[{"CPU": 4.0}])
    small = sharer("small", {"CPU": 4}, holds=[CPU], waits=[CPU])
    assert names(large, small) == []
    assert names(large, replace(small, holds=())) == ["large"]


def test_who_waits_for_a_gpu_keeps_no_one_from_cpus_that_it_does_not_need() -> None:
    both = {"CPU": 1.0, "GPU": 1.0}
    holding = Claim(amounts={"GPU": 1.0}, gpus=["0"])
    other = replace(sharer("other", {"CPU": 3}, gpus=["0"]), holds=[holding])
    waiting = sharer("waiting", {"CPU": 3}, gpus=["0"], waits=[both])
    busy = sharer("busy", {"CPU": 3}, gpus=["0"], waits=[CPU] * 3, since=9)
    assert names(other, waiting, busy) == ["busy", "busy"]  # one CPU is kept free


def test_parts_of_a_gpu_add_up_and_each_one_is_known_by_its_name() -> None:
    quarter = {"GPU": 0.25}
    a = sharer("a", {}, gpus=["0"], waits=[quarter] * 3)
    b = sharer("b", {}, gpus=["0"], waits=[quarter] * 3)
    assert len(granted(a, b)) == 4
    elsewhere = sharer("b", {}, gpus=["1"], waits=[quarter] * 3)
    given_gpus = [(one.name, *one.claim.gpus) for one in granted(a, elsewhere)]
    assert sorted(given_gpus) == [("a", "0")] * 3 + [("b", "1")] * 3


def test_whole_gpus_are_those_that_nobody_has_a_part_of() -> None:
    part = Claim(amounts={"GPU": 0.5}, gpus=["0"])
    a = replace(sharer("a", {}, gpus=["0", "1"]), holds=[part])
    b = sharer("b", {}, gpus=["0", "1"], waits=[{"GPU": 1.0}])
    assert [tuple(one.claim.gpus) for one in granted(a, b)] == [("1",)]


def test_the_machine_has_the_most_that_one_of_them_knows() -> None:
    several = [sharer("a", {"CPU": 2, "license": 1}), sharer("b", {"CPU": 4}, gpus=["7"])]
    assert total_of(several) == {"CPU": 4, "license": 1, "GPU": 1}


def test_a_worker_for_the_next_trial_ends_if_another_experiment_has_nothing() -> None:
    full = sharer("full", {"CPU": 2}, holds=[CPU, CPU])
    assert yields(together(full, sharer("new", {"CPU": 2}, waits=[CPU])), "full")
    assert not yields(together(full, sharer("idle", {"CPU": 2})), "full")
    half = replace(full, holds=full.holds[:1])
    other = sharer("other", {"CPU": 2}, holds=[CPU], waits=[CPU])
    assert not yields(together(half, other), "full")
    one = sharer("one", {"CPU": 1}, holds=[CPU])
    assert yields(together(one, sharer("new", {"CPU": 1}, waits=[CPU])), "one")


def test_there_is_room_for_another_worker_only_if_nobody_waits() -> None:
    a, b = sharer("a", {"CPU": 2}, holds=[CPU]), sharer("b", {"CPU": 2})
    assert has_room(together(a, b), "a", CPU)
    assert not has_room(together(a, b), "a", {"CPU": 2.0})
    waiting = replace(b, waits=[Wish(number=0, amounts={"CPU": 2.0})])
    assert not has_room(together(a, waiting), "a", CPU)


amounts = st.fixed_dictionaries(
    {"CPU": st.sampled_from([0.0, 0.5, 1.0, 3.0]), "GPU": st.sampled_from([0.0, 0.25, 1.0, 2.0])}
)
several = st.lists(
    st.builds(
        lambda waits, since, gpus: sharer(
            "", {"CPU": 4}, waits=waits, since=since, gpus=["0", "1", "2"][gpus:]
        ),
        st.lists(amounts, max_size=5),
        st.floats(0, 100),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=4,
)


@given(several)
def test_together_they_never_get_more_than_there_is(made: list[Member]) -> None:
    sharers = {str(n): one for n, one in enumerate(made)}
    found = due(sharers)
    assert sum(one.claim.amounts.get("CPU", 0) for one in found) <= 4
    held: dict[str, float] = {}
    for one in found:
        for gpu in one.claim.gpus:
            part = min(1.0, one.claim.amounts["GPU"])
            held[gpu] = held.get(gpu, 0) + part
            assert gpu in sharers[one.name].gpus
    assert all(amount <= 1 for amount in held.values())
