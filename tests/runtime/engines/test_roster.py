"""Members of a cluster that come and go, and the agents on their machines."""

from holdfast.runtime.engines.supply import ALL, Member, Roster


def member(key: str, host: str = "") -> Member:
    return Member(key=key, host=host or key, label=f"the worker {key}")


def roster(wanted: int, *members: Member) -> Roster:
    made = Roster("dask", rest_s=1.0)
    made.wanted = wanted
    made.know(members)
    return made


def test_each_machine_gets_one_agent() -> None:
    made = roster(9, member("a", "one"), member("b", "one"), member("c", "two"))
    assert made.due(0.0) == [member("a", "one"), member("c", "two")]
    made.take("t1", member("a", "one"), 0.0)
    assert made.due(0.0) == [member("c", "two")]


def test_no_more_are_due_than_are_wanted() -> None:
    made = roster(1, member("a"), member("b"))
    assert made.due(0.0) == [member("a")]
    made.take("t1", member("a"), 0.0)
    assert made.due(0.0) == []
    made.give_back("t1")
    assert made.due(0.0) == [member("b")]


def test_a_member_that_leaves_keeps_its_machine_until_its_agent_has_ended() -> None:
    made = roster(2, member("a"))
    made.take("t1", member("a"), 0.0)
    made.know([])
    made.know([member("a-again", "a")])
    assert made.due(0.0) == []
    made.free("t1", "the worker left", 0.0, worked=True)
    assert made.due(0.0) == []  # it rests
    assert made.next_due(0.0) == 1.0
    assert made.due(1.0) == [member("a-again", "a")]


def test_a_machine_that_has_left_is_not_due() -> None:
    made = roster(1, member("a"))
    made.know([])
    assert made.due(0.0) == []
    assert made.next_due(0.0) is None


def test_it_is_hopeless_when_each_machine_has_failed_and_none_ever_worked() -> None:
    made = roster(1, member("a"), member("b"))
    made.take("t1", member("a"), 0.0)
    made.free("t1", "no Python", 0.0, worked=False)
    assert made.hopeless == []
    made.take("t2", member("b"), 0.0)
    made.free("t2", "no disk", 0.0, worked=False)
    assert made.hopeless == ["no Python", "no disk"]


def test_what_the_user_waits_for() -> None:
    made = roster(0, member("a"))
    assert made.missing("Dask workers") == ""
    made.wanted = 3
    assert made.missing("Dask workers") == "3 more machines with Dask workers"
    made.take("t1", member("a"), 0.0)
    assert made.missing("Dask workers") == (
        "the worker a has not started its agent yet; 2 more machines with Dask workers"
    )
    made.begin("t1")
    assert made.begun("t1")
    made.wanted = 2
    assert made.missing("Dask workers") == "1 more machine with Dask workers"
    made.free("t1", "it was killed", 0.0, worked=True)
    assert made.missing("Dask workers") == (
        "a (tried again: it was killed); 1 more machine with Dask workers"
    )


def test_who_wants_all_machines_waits_for_the_first() -> None:
    made = roster(ALL)
    assert made.missing("Ray nodes") == "1 more machine with Ray nodes"
    made.know([member("a")])
    made.take("t1", member("a"), 0.0)
    made.begin("t1")
    assert made.missing("Ray nodes") == ""
