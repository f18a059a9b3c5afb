"""A snapshot has every attribute of the machine that does not say otherwise."""

from __future__ import annotations

from typing import Annotated, get_args, get_origin, get_type_hints

import pytest

from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.kept import NOT_KEPT
from holdfast.scheduler.machine import Machine, from_snapshot
from holdfast.scheduler.state import State
from holdfast.schema import UnreadableRecord
from holdfast.testing.rehearsal import NOT_IN_SNAPSHOTS, Rehearsal

# Derived while trials are added.
DERIVED = {"folders", "clones"}


def test_every_attribute_says_whether_a_snapshot_has_it() -> None:
    machine = Machine()
    for owner in (machine, machine.placement, machine.expected):
        named = get_type_hints(type(owner)).keys()
        assert vars(owner).keys() == named, "annotate it in the body of the class"


def test_only_what_another_attribute_says_or_what_outlives_no_event_is_left_out() -> None:
    hints = get_type_hints(State, include_extras=True)
    left_out = {
        name
        for name, hint in hints.items()
        if get_origin(hint) is Annotated and NOT_KEPT in get_args(hint)
    }
    assert left_out == NOT_IN_SNAPSHOTS | DERIVED


def test_an_attribute_that_is_added_is_in_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.scheduler import codec as module

    monkeypatch.setitem(State.__annotations__, "mood", "str")
    monkeypatch.setattr(State, "mood", "calm", raising=False)
    for cached in (module._attributes, module._reader):
        cached.cache_clear()
    try:
        machine = Machine()
        machine.mood = "eager"  # type: ignore[attr-defined]
        plain = snapshot(machine)
        assert plain["mood"] == "eager"
        assert vars(from_snapshot(plain))["mood"] == "eager"
    finally:
        for cached in (module._attributes, module._reader):
            cached.cache_clear()


def test_a_rare_attribute_is_written_only_where_there_is_something() -> None:
    run = Rehearsal()
    assert not snapshot(run.machine).keys() & {"saving", "returning", "questions", "waits"}
    run.suggest()
    run.machine.saving["t0"] = 1
    assert snapshot(run.machine)["saving"] == {"t0": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"saving": {"t7": 1}},
        {"withheld": {"t7": 1}},
        {"returning": ["t7"]},
        {"questions": {"t7": {}}},
        {"queue": ["t7"]},
        {"waits": {"t7": "retry"}},
        {"holds": {"t7": {"amounts": {"CPU": 1}}}},
        {"idle": {"t7": {"amounts": {"CPU": 1}}}},
    ],
    ids=str,
)
def test_a_trial_that_is_not_there_is_refused_wherever_it_is_named(
    change: dict[str, object],
) -> None:
    with pytest.raises(UnreadableRecord, match="it names a trial that it does not have: 't7'"):
        from_snapshot(snapshot(Rehearsal().machine) | change)
