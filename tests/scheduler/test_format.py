"""Examples of journals and snapshots of the present format must still load."""

import json
from pathlib import Path
from typing import Any

import msgpack

from holdfast.experiment.records.journal import pack, read_events, unpack
from holdfast.scheduler.codec import DECISIONS, EVENTS, snapshot
from holdfast.scheduler.events import FORMAT, Begun, Recalled
from holdfast.scheduler.machine import Machine, from_snapshot
from holdfast.syncer.journal.journal import read
from holdfast.testing.invariants import check
from holdfast.trial.trial import Status, StopReason

DATA = Path(__file__).parents[1] / "data"
THIRD = DATA / "format-3"
SETTLED, EXPLAINED, MEASURED, STEERED, AHEAD = (
    DATA / name for name in ("settled", "explained", "measured", "steered", "ahead")
)


def folded(journal: Path) -> Machine:
    machine = Machine()
    for (event, now, answers), _ in read_events(journal):
        machine.replay(event, now=now, answers=answers)
        check(machine)
    return machine


def test_there_is_an_example_of_the_present_version() -> None:
    (begun,) = [r.event for r, _ in read_events(THIRD / "journal") if isinstance(r.event, Begun)]
    assert begun.version == FORMAT == 3


def test_the_newest_examples_tell_every_kind_of_event_and_of_decision() -> None:
    newest = [one / "journal" for one in (THIRD, SETTLED, EXPLAINED, MEASURED, STEERED, AHEAD)]
    records = [record for journal in newest for record, _ in read_events(journal)]
    assert {type(record.event).__name__ for record in records} == set(EVENTS) - {"Recalled"}
    decisions = [one for record in records for decided in record.answers for one in decided]
    assert {type(one).__name__ for one in decisions} == set(DECISIONS)


def test_there_is_an_example_of_a_journal_that_starts_again() -> None:
    machine = Machine()
    for (event, now, answers), _ in read_events(DATA / "begun-anew" / "journal"):
        machine.replay(event, now=now, answers=answers)
        if isinstance(event, Recalled):
            assert [trial.iteration for trial in machine.trials.values()] == [4, 4, 0]
    assert [trial.iteration for trial in machine.trials.values()] == [5, 5, 0]
    assert machine.spec.metric == "loss"


def test_a_journal_of_version_3_loads_and_has_the_nodes() -> None:
    machine = folded(THIRD / "journal")
    assert list(machine.cluster.nodes) == ["e"]
    former = {name: node.was.leaving for name, node in machine.cluster.former.items()}
    assert former == {"a": False, "b": True, "c": False, "d": False}
    plain: dict[str, Any] = json.loads((THIRD / "snapshot.json").read_text())
    assert as_bytes(from_snapshot(plain)) == as_bytes(machine)


def test_a_journal_whose_nodes_detect_what_they_have_loads() -> None:
    machine = folded(SETTLED / "journal")
    assert machine.cluster.settled
    plain: dict[str, Any] = json.loads((SETTLED / "snapshot.json").read_text())
    assert as_bytes(from_snapshot(plain)) == as_bytes(machine)


def test_a_journal_that_says_why_its_trials_stopped_loads() -> None:
    machine = folded(EXPLAINED / "journal")
    first, second, third, fourth = machine.trials.values()
    stops = [trial.stop for trial in (first, second, third, fourth)]
    assert [stop and stop.reason for stop in stops] == [
        StopReason.PRUNED,
        StopReason.FINISHED,
        StopReason.BUDGET,
        StopReason.FINISHED,
    ]
    assert first.stop is not None
    assert first.stop.why == "loss=0.5 at training_iteration=1 is worse than the cutoff, 0.25"
    assert [(v.milestone, v.promoted, v.bracket) for v in second.rungs] == [(1, True, 1)]
    assert [(t.source, t.changes) for t in third.takeovers] == [("t3", {"lr": 0.125})]
    plain: dict[str, Any] = json.loads((EXPLAINED / "snapshot.json").read_text())
    assert as_bytes(from_snapshot(plain)) == as_bytes(machine)


def test_the_orders_of_earlier_journals_have_no_reason_and_the_machine_says_who_gave_them() -> (
    None
):
    stop = folded(THIRD / "journal").trials["t2"].stop
    assert stop is not None
    assert (stop.reason, stop.by, stop.why) == (StopReason.STOPPED, "Told", "")


def test_a_journal_that_says_what_attempts_have_used_loads() -> None:
    machine = folded(MEASURED / "journal")
    (usage,) = machine.trials["t0"].usages
    assert (usage.cpu_s, usage.gpu_memory_bytes, usage.gpu_utilisation) == (4.5, 7 << 30, 0.75)
    plain: dict[str, Any] = json.loads((MEASURED / "snapshot.json").read_text())
    assert as_bytes(from_snapshot(plain)) == as_bytes(machine)


def test_a_journal_of_a_run_whose_search_was_asked_ahead_loads() -> None:
    machine = folded(AHEAD / "journal")
    assert list(machine.trials) == ["t0", "t1", "t2"]
    assert [one.spec.trial_id for one in machine.ahead] == ["t3"]
    plain: dict[str, Any] = json.loads((AHEAD / "snapshot.json").read_text())
    assert as_bytes(from_snapshot(plain)) == as_bytes(machine)


def test_a_journal_of_a_run_that_a_person_steers_loads() -> None:
    machine = folded(STEERED / "journal")
    first, second, third, fourth = machine.trials.values()
    assert (first.shown_status, first.note) == (Status.PAUSED, "is its data right?")
    assert second.stop is not None
    assert (second.stop.reason, second.stop.by) == (StopReason.USER, "ann (page)")
    assert (third.attempt, third.is_pausing, fourth.spec.is_added) == (2, True, True)
    assert [added.config for added in machine.configs] == [{"lr": 0.125}]
    spec = machine.spec
    assert (spec.max_concurrent, spec.num_samples, spec.options["trials"]) == (None, 4, 4)
    assert spec.options["said"] == {"max_concurrent": 2, "num_samples": 3}
    plain: dict[str, Any] = json.loads((STEERED / "snapshot.json").read_text())
    assert as_bytes(from_snapshot(plain)) == as_bytes(machine)


def test_the_records_of_the_newest_example_would_be_written_alike_now() -> None:
    for payload, end in read(STEERED / "journal"):
        assert pack(*unpack(payload, end)) == payload


def as_bytes(machine: Machine) -> bytes:
    """For comparing: NaN is not equal to itself. The examples are older than `has_all_rungs`."""
    plain = {name: part for name, part in snapshot(machine).items() if name != "has_all_rungs"}
    written: bytes = msgpack.packb(plain)
    return written
