"""A machine that skips reports ends as one that handles every record."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from holdfast.experiment.records.journal import pack
from holdfast.results.page.followed_records import AnotherBegins, Folded, Folding
from holdfast.scheduler.codec import Record
from holdfast.scheduler.effects import Effect
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Position
from holdfast.testing.rehearsal import Rehearsal, facts
from tests.rig.runs.dense_runs import RUNS, SLOTS, dense_run
from tests.scheduler.any_order.any_order import AnyOrder


class Counting(Machine):
    """Counts the events that it handles."""

    def __init__(self) -> None:
        super().__init__()
        self.handled = 0

    def handle(self, event: Any, *, now: float) -> list[Effect]:
        self.handled += 1
        return super().handle(event, now=now)


def replayed(machine: Machine, records: Sequence[Record]) -> Machine:
    for event, now, answers in records:
        machine.replay(event, now=now, answers=answers)
    return machine


def packed(records: Sequence[Record]) -> list[tuple[bytes, Position]]:
    return [
        (pack(event, now, answers), Position(0, at))
        for at, (event, now, answers) in enumerate(records)
    ]


def in_batches(records: Sequence[Record], dice: random.Random) -> Iterator[tuple[int, int]]:
    at = 1
    while at < len(records):
        end = min(len(records), at + dice.choice([1, 2, 10, 50, 200]))
        yield at, end
        at = end


def check_same(records: Sequence[Record], seed: int) -> None:
    """Folds the records in batches of random sizes, next to a machine that handles each."""
    folding = Folding(replayed(Machine(), records[:1]))
    expected = replayed(Machine(), records[:1])
    for at, end in in_batches(records, random.Random(seed)):
        before = dict(expected.trials)
        replayed(expected, records[at:end])
        try:
            folded: Folded | None = folding.apply(packed(records[at:end]))
        except AnotherBegins:  # the experiment is read again
            folding, folded = Folding(replayed(Machine(), records[:end])), None
        if folded is not None and not folded.is_all:
            trials = expected.trials.items()
            assert {one for one, now in trials if now != before.get(one)} <= folded.changed
        found, wanted = facts(folding.machine), facts(expected)
        # The same seconds, added in another order.
        assert found.pop("active_s") == pytest.approx(wanted.pop("active_s"))
        assert found == wanted


@pytest.mark.parametrize("name", RUNS)
def test_skipped_reports_leave_the_machine_as_if_it_had_handled_all(name: str) -> None:
    for seed in range(2):
        check_same(dense_run(name, seed).to_the_end(), seed)


def test_a_report_that_reaches_a_bound_is_not_skipped() -> None:
    run = Rehearsal(stop={"loss": 1.0})
    run.suggest()
    run.start("t0")
    for loss in (0.1, 2.0, 0.3):  # the user's code goes on reporting
        run.report("t0", {"loss": loss})
    run.ends("t0")
    check_same(run.events, 3)


def test_most_reports_are_skipped() -> None:
    player = dense_run("fifo", 0)
    for _ in range(1_000):
        trial_id = player.dice.choice(sorted(player.running))
        player.perform(player.run.report(trial_id, {"loss": player.dice.random()}))
    events = player.run.events
    machine = Counting()
    replayed(machine, events[:-500])
    folded = Folding(machine).apply(packed(events[-500:]))
    assert folded.reports == 500
    assert not folded.is_more
    assert machine.handled == len(events) - 500 + SLOTS


class FoldedAnyOrder(AnyOrder):
    """The walk of the machine through possible events, with its journal read in batches."""

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "run"):
            check_same(self.run.events, len(self.run.events))


TestFoldedAnyOrder = FoldedAnyOrder.TestCase
TestFoldedAnyOrder.settings = settings(
    max_examples=5,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
