"""Events and machines as plain data: what the journal and the snapshots hold."""

import types
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import is_dataclass, replace
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest

from holdfast.scheduler import codec
from holdfast.scheduler.codec import decode, encode, snapshot
from holdfast.scheduler.events import (
    Begun,
    ConfigAdded,
    EndOrdered,
    Outlook,
    Suggested,
)
from holdfast.scheduler.machine import Machine, from_snapshot
from holdfast.scheduler.nodes.cluster import Cluster, FormerNode, Node
from holdfast.scheduler.placement import WaitsFor
from holdfast.scheduler.policy import Decision
from holdfast.schema import UnreadableRecord
from holdfast.testing.rehearsal import Rehearsal, facts, trial_spec
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.resources import ONE_CPU, NodeKind, PlacementGroupFactory
from holdfast.trial.trial import Origin, Status
from tests.rig.scheduler.samples import DECISIONS, EVENTS

NOW = 1_700_000_000.25


def through_bytes(plain: Any) -> Any:
    return msgpack.unpackb(msgpack.packb(plain), strict_map_key=False)


def of_kind(name: str) -> list[Any]:
    """The record of the sample of one kind."""
    (event,) = [event for event in EVENTS if type(event).__name__ == name]
    record: list[Any] = through_bytes(encode(event, NOW))
    return record


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: type(decision).__name__)
def test_what_was_decided_at_an_event_comes_back_with_it(decision: Decision) -> None:
    event = EndOrdered(reason="budget")
    read = decode(through_bytes(encode(event, NOW, [(), (decision, decision)])))
    assert read == (event, NOW, [[], [decision, decision]])


def test_every_decision_that_is_written_can_be_read() -> None:
    assert set(codec.DECISIONS.values()) == {type(decision) for decision in DECISIONS}


def test_every_event_that_is_written_can_be_read() -> None:
    assert set(codec.EVENTS.values()) == {type(event) for event in EVENTS}


def test_a_record_says_its_name_its_time_and_its_fields() -> None:
    event = EndOrdered(reason="budget", message="spent")
    assert encode(event, NOW) == ["EndOrdered", NOW, {"reason": "budget", "message": "spent"}]


def test_a_field_that_was_not_written_yet_takes_its_default() -> None:
    assert decode(["EndOrdered", NOW, {"reason": "budget"}]).event == EndOrdered(reason="budget")
    begun = of_kind("Begun")
    del begun[2]["spec"]["has_stopper"]
    event = decode(begun).event
    assert isinstance(event, Begun)
    assert not event.spec.has_stopper


def test_a_field_that_this_version_does_not_know_is_refused_and_named() -> None:
    with pytest.raises(UnreadableRecord, match=r"EndOrdered has fields .* not know: 'hue'"):
        decode(["EndOrdered", NOW, {"reason": "budget", "hue": "blue"}])


def test_a_field_that_is_missing_is_refused_and_named() -> None:
    with pytest.raises(UnreadableRecord, match="CheckpointLost: trial_id is missing"):
        decode(["CheckpointLost", NOW, {"index": 1}])


@pytest.mark.parametrize(
    "record",
    [
        ["Rescheduled", NOW, {}],
        ["SearchEnded", NOW],
        ["SearchEnded", NOW, {}, "more"],
        [["SearchEnded"], NOW, {}],
        [],
        ["SearchEnded", NOW, 5],
        ["Machine", NOW, {}],
    ],
    ids=str,
)
def test_what_is_not_an_event_of_this_version_is_refused(record: list[Any]) -> None:
    with pytest.raises(UnreadableRecord):
        decode(record)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("Suggested", ["spec", "resources"], {"strategy": "PACK"}),
        ("Suggested", ["spec", "resources", "strategy"], "SCATTER"),
        ("Suggested", ["spec", "resources", "bundles"], [{"CPU": -1}]),
        ("Suggested", ["spec", "config"], {"__holdfast__": "portrait"}),
        ("Suggested", ["spec"], "a trial"),
        ("Begun", ["spec", "failure"], {"max_failures": -5}),
        ("Begun", ["spec", "checkpoint", "num_to_keep"], 0),
        ("Reported", ["checkpoint"], [1, 2]),
        ("Reported", ["checkpoint", "hue"], "blue"),
        ("Raised", ["failure"], {"kind": "user"}),
    ],
)
def test_a_part_that_makes_no_sense_is_refused(name: str, path: list[str], value: Any) -> None:
    record = of_kind(name)
    inside = record[2]
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    with pytest.raises(UnreadableRecord):
        decode(record)


def closed_sets(kind: Any, plain: Any, place: tuple[Any, ...] = ()) -> Iterator[Any]:
    """The places in a record where only certain words may stand, and those words."""
    parts = [part for part in get_args(kind) if part is not type(None)]
    if get_origin(kind) is Literal:
        yield place, get_args(kind)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        yield place, tuple(str(member.value) for member in kind)
    elif is_dataclass(kind) and isinstance(plain, dict):
        for name, hint in get_type_hints(kind).items():
            yield from closed_sets(hint, plain.get(name), (*place, name))
    elif get_origin(kind) in (Union, types.UnionType) and len(parts) == 1:
        yield from closed_sets(parts[0], plain, place)
    elif get_origin(kind) in (tuple, Sequence) and plain:
        yield from closed_sets(parts[0], plain[0], (*place, 0))


def records_of_closed_sets() -> Iterator[Any]:
    for event in EVENTS:
        record = through_bytes(encode(event, NOW))
        for place, words in closed_sets(type(event), record[2]):
            yield pytest.param(record, (2, *place), words, id=f"{record[0]}-{place[-1]}")


def test_every_field_of_a_closed_set_is_known_to_the_test_below() -> None:
    found = {case.id for case in records_of_closed_sets()}
    assert found >= {
        *("EndOrdered-reason", "Exited-kind", "Raised-kind", "StopperAnswered-kind"),
        *("Resumed-errored", "Resumed-unfinished", "Resumed-finished", "Begun-mode"),
        *("Reported-upload", "Saved-upload", "Adopted-upload"),
    }


@pytest.mark.parametrize(("record", "place", "words"), [*records_of_closed_sets()])
def test_a_word_outside_of_a_closed_set_is_refused_and_the_words_are_named(
    record: list[Any], place: tuple[Any, ...], words: tuple[str, ...]
) -> None:
    for word in words:
        decode(with_another(record, place, word))
    one = words[0]
    for wrong in (one.swapcase(), f"{one} ", one[:-1], "", one.encode(), 0, True, [one], {one: 1}):
        with pytest.raises(UnreadableRecord) as raised:
            decode(with_another(record, place, wrong))
        told = str(raised.value)
        assert f"{place[-1]} must be one of {', '.join(words)}, not " in told


ODD: list[Any] = [
    *(None, True, -1, 1e308, float("nan"), "", "x", b"x"),
    *([], [1], [[]], {}, {"x": 1}, {"x": {}}),
]


def places(plain: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The fields of every part of it, from the outside in."""
    yield place
    if isinstance(plain, list | dict):
        for key in plain if isinstance(plain, dict) else range(len(plain)):
            yield from places(plain[key], (*place, key))


def with_another(plain: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    twin = copy(plain)
    twin[place[0]] = with_another(plain[place[0]], place[1:], value)
    return twin


@pytest.mark.parametrize("sample", [*EVENTS, *DECISIONS], ids=lambda one: type(one).__name__)
def test_whatever_stands_in_any_part_of_a_record_it_is_read_or_refused(sample: Any) -> None:
    event, answers = (
        (sample, ()) if sample in EVENTS else (EndOrdered(reason="budget"), [[sample]])
    )
    record = through_bytes(encode(event, NOW, answers))
    for place in places(record):
        for odd in ODD:
            with suppress(UnreadableRecord):
                decode(with_another(record, place, odd))


@pytest.mark.parametrize("field", ["dirname", "trial_id"])
@pytest.mark.parametrize("name", ["../../victim", "/etc", "a/b", "..", "", "a\0b", "x" * 300, 7])
def test_a_name_that_leads_out_of_the_experiment_is_refused_and_shown(
    field: str, name: object
) -> None:
    record = of_kind("Suggested")
    record[2]["spec"][field] = name
    with pytest.raises(UnreadableRecord, match=f"TrialSpec: {field} ") as raised:
        decode(record)
    assert str(raised.value).isprintable()


def test_two_trials_of_one_folder_or_id_are_refused() -> None:
    for field in ("dirname", "trial_id"):
        machine = Machine()
        machine.replay(*decode(of_kind("Begun"))[:1], now=1.0)
        first, second = (of_kind("Suggested") for _ in range(2))
        first[2]["spec"] |= {"dirname": "a", "trial_id": "a"}
        second[2]["spec"] |= {"dirname": "b", "trial_id": "b", field: "a"}
        machine.replay(decode(first).event, now=2.0)
        with pytest.raises(UnreadableRecord, match="there are two trials"):
            machine.replay(decode(second).event, now=3.0)


def test_a_record_that_cannot_follow_is_one_line() -> None:
    with pytest.raises(UnreadableRecord, match="Reported cannot follow the records before it"):
        Machine().replay(decode(of_kind("Reported")).event, now=1.0)


@pytest.mark.parametrize("now", [float("nan"), float("inf"), -1, 1e300, "now", None, True])
def test_a_time_that_no_clock_tells_is_refused(now: object) -> None:
    with pytest.raises(UnreadableRecord, match="its time must be seconds since 1970"):
        decode(["SearchEnded", now, {}])


# -- snapshots ----------------------------------------------------------------------------------


def eventful() -> Machine:
    """A machine with trials that wait, run, idle, have ended and have failed."""
    run = Rehearsal(
        capacity={"CPU": 3, "GPU": 2},
        reuse_actors=True,
        resources=None,
        failure=FailureConfig(max_failures=1),
        checkpoint=CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="loss"),
        metric="loss",
        strict_kind=True,
        stop={"training_iteration": 9},
    )
    run.suggest({"CPU": 1, "GPU": 0.5})
    run.suggest()
    run.suggest()
    run.start("t0", "t1", "t2")
    run.report("t0", {"loss": 0.5, "nested": {"deep": [1, 2]}}, checkpoint=True)
    run.commit("t0", 0)
    run.fails("t1")
    run.returns("t2")
    run.suggest({"CPU": 3})
    return run.machine


def unlike() -> Machine:
    """A machine in which every attribute differs from a new one's."""
    machine = eventful()
    machine.epoch, machine.boot_id, machine.now = 2, "boot", NOW
    machine.ending, machine.finished = EndOrdered(reason="budget"), True
    machine.asking = not machine.asking
    machine.ahead, machine.asking_ahead = (Suggested(spec=trial_spec(9), took_s=0.5),), True
    machine.suggestion_s, machine.look_ahead = 0.5, 0.125
    machine.outlook = Outlook(best=0.5, gain=0.1, is_little=True)
    machine.search_ended = machine.is_complete = machine.search_waits = True
    machine.active_s, machine.errored_before, machine.has_warned_of_restarts = 7.5, 3, True
    machine.resume_when_free = {"t2"}
    machine.questions, machine.deferred_replies = {"t0": {"config": {"lr": 1.0}}}, {"t0": 1}
    machine.saving = {"t0": 1}
    machine.trials["t2"] = replace(
        machine.trials["t2"],
        status=Status.PAUSED,
        origin=Origin(trial_id="t0", checkpoint=machine.trials["t0"].checkpoints[0]),
    )
    machine.clones = {"t0": {"t2"}}
    machine.expected.metric_seen, machine.expected.bounds = False, ("loss",)
    machine.expected.score_checked = False
    machine.placement.waits = {"t1": WaitsFor.RETRY, "t2": WaitsFor.PERSON}
    machine.configs, machine.asking_config = (ConfigAdded(config={"lr": (1,)}, by="ann"),), True
    machine.confirming, machine.shrunk = True, {"t1"}
    machine.placement.rest("t0")
    machine.placement.take("t3", ONE_CPU)
    offer = [NodeKind(name="k", resources={"CPU": 2}, most=3)]
    left = FormerNode(was=Node(number=0, resources={"CPU": 1}), cause="no beat", is_earlier=True)
    cluster = Cluster(offer, former={"b": left})
    cluster.settle()
    machine.placement.cluster = cluster
    cluster.join("a", {"CPU": 3, "GPU": 1}, kind="k", hostname="a.local", address="10.0.0.1")
    request = PlacementGroupFactory([{"CPU": 1, "GPU": 0.5}, {"CPU": 1}])
    machine.placement.take("t1", request)
    return machine


def test_every_attribute_of_the_machine_is_in_a_snapshot() -> None:
    machine, new = unlike(), facts(Machine())
    known = facts(machine)
    alike = {name for name in known if known[name] == new.get(name)}
    assert not alike, f"give them another value in unlike(), or nothing is compared: {alike}"
    assert facts(from_snapshot(through_bytes(snapshot(machine)))) == known


@pytest.mark.parametrize("name", sorted(snapshot(Machine()).keys() - {"score_checked"}))
def test_a_snapshot_without_one_of_its_parts_is_refused(name: str) -> None:
    plain = snapshot(eventful())
    del plain[name]
    with pytest.raises(UnreadableRecord):
        from_snapshot(plain)


@pytest.mark.parametrize(
    "change",
    [
        {"trials": [{"status": "PENDING"}]},
        {"trials": 5},
        {"spec": None},
        {"holds": {"t0": {"amounts": {"TPU": 1}}}},
        {"holds": {"t0": {"amounts": {}, "gpus": [7], "hue": "blue"}}},
        {"queue": None},
        {"ending": {"why": "budget"}},
    ],
    ids=str,
)
def test_a_snapshot_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnreadableRecord):
        from_snapshot({**snapshot(eventful()), **change})


def test_a_status_of_another_version_is_refused() -> None:
    plain = snapshot(eventful())
    plain["trials"][0]["status"] = "DREAMING"
    with pytest.raises(UnreadableRecord, match="DREAMING"):
        from_snapshot(plain)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue", ["nobody"]),
        ("holds", {"nobody": {"amounts": {}}}),
        ("now", float("inf")),
        ("capacity", {"CPU": "all"}),
        ("trials", {}),
        ("hue", 1),
    ],
)
def test_a_snapshot_of_wrong_content_is_refused(name: str, value: Any) -> None:
    plain = through_bytes(snapshot(eventful())) | {name: value}
    with pytest.raises(UnreadableRecord):
        from_snapshot(plain)


def test_whatever_stands_in_any_part_of_a_snapshot_it_is_read_or_refused() -> None:
    plain = through_bytes(snapshot(unlike()))
    for place in places(plain):
        for odd in ODD:
            with suppress(UnreadableRecord):
                from_snapshot(with_another(plain, place, odd))


def test_a_snapshot_with_two_trials_of_one_folder_is_refused() -> None:
    plain = through_bytes(snapshot(eventful()))
    plain["trials"][1]["spec"]["dirname"] = plain["trials"][0]["spec"]["dirname"]
    with pytest.raises(UnreadableRecord, match="there are two trials"):
        from_snapshot(plain)
