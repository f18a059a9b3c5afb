"""Seats of an engine: which is next, how long one rests, and when there is no hope."""

from dataclasses import replace

from holdfast.runtime.engines.supply import (
    LONGEST_REST_S,
    STEADY_S,
    Seat,
    are_hopeless,
    due,
    failing,
    freed,
    given_back,
    next_due,
    taken,
    working,
)

A, B, C = (Seat(name=name, kind="k") for name in "abc")


def names(seats: list[Seat]) -> str:
    return "".join(seat.name for seat in seats)


def failed(seat: Seat, now: float = 0.0, times: int = 1) -> Seat:
    for _ in range(times):
        seat = freed(taken(seat, "t", now), now, "refused", worked=False)
    return seat


def test_as_many_seats_are_due_as_agents_are_missing() -> None:
    assert names(due([A, B, C], {"k": 2}, 0.0)) == "ab"
    assert names(due([taken(A, "t", 0.0), B, C], {"k": 2}, 0.0)) == "b"
    assert names(due([taken(A, "t", 0.0), B, C], {"k": 1}, 0.0)) == ""
    assert names(due([A, B, C], {"other": 2}, 0.0)) == ""


def test_a_seat_that_was_given_back_is_replaced_by_another_only_if_it_is_wanted() -> None:
    leaving = given_back(taken(A, "t", 0.0))
    assert names(due([leaving, B], {"k": 1}, 0.0)) == "b"
    assert names(due([leaving, B], {"k": 0}, 0.0)) == ""
    assert freed(leaving, 5.0, "was given back", worked=True) == replace(
        A, has_worked=True, since=0.0, rests_until=5.0
    )


def test_seats_that_have_failed_come_last_and_rest_longer_each_time() -> None:
    assert names(due([failed(A), B, C], {"k": 3}, 5.0)) == "bca"
    rests = [failed(A, times=times).rests_until for times in (1, 2, 3, 4)]
    assert rests == [1.0, 2.0, 4.0, 8.0]
    assert failed(A, times=20).rests_until == LONGEST_REST_S
    assert names(due([failed(A)], {"k": 1}, 0.5)) == ""
    assert next_due([failed(A)], {"k": 1}, 0.5) == 1.0
    assert next_due([failed(A)], {"k": 0}, 0.5) is None


def test_an_agent_that_worked_for_long_starts_again_soon() -> None:
    seat = working(taken(failed(A, times=6), "t", 0.0))
    assert freed(seat, STEADY_S, "lost", worked=True).rests_until == STEADY_S + 1.0
    assert freed(seat, 2.0, "lost", worked=True).rests_until == 2.0 + LONGEST_REST_S


def test_there_is_no_hope_once_each_wanted_seat_has_failed_and_none_has_worked() -> None:
    assert not are_hopeless([failed(A), B], {"k": 1})
    assert not are_hopeless([failed(A), taken(B, "t", 0.0)], {"k": 1})
    assert are_hopeless([failed(A), failed(B)], {"k": 1})
    assert are_hopeless([taken(failed(A), "u", 1.0), failed(B)], {"k": 1})
    assert not are_hopeless([working(taken(failed(A), "u", 1.0)), failed(B)], {"k": 1})
    assert not are_hopeless([failed(A), failed(B)], {"k": 0})
    worked = freed(taken(B, "t", 0.0), 1.0, "lost", worked=True)
    assert not are_hopeless([failed(A), worked], {"k": 2})


def test_only_seats_that_are_missed_are_named() -> None:
    busy = working(taken(B, "t", 0.0))
    assert names(failing([failed(A), busy], {"k": 2})) == "a"
    assert names(failing([taken(failed(A), "u", 1.0), busy], {"k": 2})) == "a"
    assert names(failing([failed(A), busy], {"k": 1})) == ""
    assert names(failing([working(taken(failed(A), "u", 1.0)), busy], {"k": 2})) == ""
