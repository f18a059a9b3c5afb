"""Which place gets the next agent, the pause after a failure, and when there is no hope."""

import pytest

from holdfast.runtime.engines.supply import LONGEST_PAUSE_S, STEADY_S, Backoff, Place, Supply


def supply(names: str = "abc", **wanted: int) -> Supply:
    made = Supply([Place(name=name, kind="k") for name in names])
    made.wanted = wanted
    return made


def start(made: Supply, name: str, *, now: float = 0.0, begins: bool = False) -> Place:
    place = made.places[name]
    place.ticket, place.since, place.has_begun = f"ticket-{name}", now, begins
    return place


def fail(made: Supply, name: str, *, now: float = 0.0, times: int = 1) -> None:
    for _ in range(times):
        made.end(start(made, name, now=now), f"{name} refused", now, worked=False)


def due(made: Supply, now: float = 0.0) -> str:
    return "".join(place.name for place in made.due(now))


def test_as_many_places_are_due_as_agents_are_missing() -> None:
    made = supply(k=2)
    assert due(made) == "ab"
    start(made, "a")
    assert due(made) == "b"
    made.wanted = {"k": 1}
    assert due(made) == ""
    made.wanted = {"other": 2}
    assert due(made) == ""


def test_an_agent_that_was_given_back_is_replaced_only_if_it_is_wanted_and_leaves_no_pause() -> (
    None
):
    made = supply("ab", k=1)
    place = start(made, "a")
    assert due(made) == ""
    place.is_leaving = True
    assert due(made) == "b"
    made.end(place, "was given back", 5.0, worked=True)
    assert made.next_due(5.0) is None
    assert made.of("ticket-a") is None
    assert due(made, 5.0) == "a"


def test_places_that_have_failed_come_last_and_pause_longer_each_time() -> None:
    made = supply(k=3)
    fail(made, "a")
    assert due(made, 0.5) == "bc"
    assert made.next_due(0.5) == 1.0
    assert due(made, 5.0) == "bca"
    made.wanted = {"k": 0}
    assert made.next_due(0.5) is None


def test_a_pause_doubles_up_to_a_minute_however_often_it_fails() -> None:
    backoff, pauses = Backoff(), []
    for _ in range(2000):
        backoff = backoff.after_failure(0.0, "refused")
        pauses.append(backoff.until)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == LONGEST_PAUSE_S
    assert backoff.after_success() == Backoff()


@pytest.mark.parametrize(("end_s", "pause_s"), [(STEADY_S, 1.0), (2.0, LONGEST_PAUSE_S)])
def test_an_agent_that_worked_for_long_starts_again_soon(end_s: float, pause_s: float) -> None:
    made = supply("a", k=1)
    fail(made, "a", times=7)
    made.end(start(made, "a", begins=True), "lost", end_s, worked=True)
    assert made.next_due(end_s) == end_s + pause_s


def test_there_is_no_hope_once_each_wanted_place_has_failed_and_none_has_worked() -> None:
    made = supply("ab", k=1)
    fail(made, "a")
    assert made.hopeless == []
    start(made, "b")
    assert made.hopeless == []
    fail(made, "b")
    assert made.hopeless == ["a refused", "b refused"]
    place = start(made, "a")  # it is tried again
    assert made.hopeless == ["a refused", "b refused"]
    place.has_begun = True
    assert made.hopeless == []
    made.end(place, "lost", 1.0, worked=True)
    assert made.hopeless == []


def test_only_failing_places_that_are_missed_are_named() -> None:
    made = supply("ab", k=2)
    fail(made, "a")
    start(made, "b", begins=True)
    assert [place.retry_text for place in made.failing] == ["a (tried again: a refused)"]
    made.wanted = {"k": 1}
    assert made.failing == []
    made.wanted = {"k": 2}
    start(made, "a", begins=True)
    assert made.failing == []


def member(key: str, host: str) -> Place:
    return Place(name=host, kind="k", member=key, label=f"the worker {key}")


def test_each_machine_of_a_cluster_gets_one_agent_by_its_first_member() -> None:
    made = supply("", k=9)
    made.know([member("a", "one"), member("b", "one"), member("c", "two")])
    assert [place.member for place in made.due(0.0)] == ["a", "c"]
    made.know([])
    assert made.due(0.0) == []
    assert made.next_due(0.0) is None


def test_a_member_that_leaves_keeps_its_machine_until_its_agent_has_ended() -> None:
    made = supply("", k=2)
    made.know([member("a", "one")])
    place = start(made, "one")
    made.know([])
    made.know([member("a-again", "one")])
    assert (made.due(0.0), place.member) == ([], "a")
    made.end(place, "the worker left", 0.0, worked=True)
    assert made.due(0.0) == []  # it pauses
    assert [(place.member, place.name) for place in made.due(1.0)] == [("a-again", "one")]
