"""The tracker process with a virtual clock, and a journal that no worker wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.trackers import process as module
from holdfast.experiment.trackers.delivery import (
    DeliveryState,
    RetryDelays,
    TrackerCall,
    TrackerJob,
    decode_accounts,
)
from holdfast.experiment.trackers.process import BatchOutcome, DeliveryLoop, fold_for
from holdfast.syncer.journal.journal import Position, readable_end
from holdfast.trial.config import FailureConfig
from tests.rig.runs.recorded import RecordedExperiment


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def chance(self) -> float:
        return 0.0


class Given:
    """Replaces the calls of the tracker: records them, and does nothing."""

    def __init__(self) -> None:
        self.batches: list[Sequence[TrackerCall]] = []
        self.ends = 0

    def tell(self, batch: Sequence[TrackerCall]) -> None:
        self.batches.append(batch)

    def finish(self) -> None:
        self.ends += 1


def job_of(run: RecordedExperiment) -> TrackerJob:
    return TrackerJob(
        root=str(run.layout.root),
        experiment_id=run.machine.spec.experiment_id,
        trainable="t",
        experiment_path="",
        begins=0,
        file="T",
    )


class Desk:
    """A tracker process, its clock and its messages."""

    def __init__(self, run: RecordedExperiment) -> None:
        self.clock, self.calls, self.said = Clock(), Given(), list[list[Any]]()
        self.run = run
        self.cursor_file = run.layout.tracker_cursor("T")
        self.tracker_process = DeliveryLoop(
            job_of(run), self.calls, self.clock, self.said.append, delays=RetryDelays(tries=2)
        )

    def follow(self) -> None:
        end = readable_end(self.run.layout.journal)
        self.tracker_process.receive(["upto", end.segment, end.offset])
        self.tracker_process.act()

    def answer(self, outcome: BatchOutcome, after_s: float = 1.0) -> None:
        self.tracker_process.receive(["outcome", outcome])
        self.clock.at += after_s
        self.tracker_process.act()

    def takes(self, held: frozenset[str] = frozenset()) -> list[str]:
        """Take the waiting batch; returns its hooks."""
        batch = self.calls.batches[-1]
        self.answer(BatchOutcome(taken=len(batch), held=held))
        return [call.hook.removeprefix("on_trial_") for call in batch]

    @property
    def cursor(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cursor_file.read_text())["trials"]
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path / "exp", failure=FailureConfig(max_failures=9))
    yield recorded
    recorded.close()


def trial_of(run: RecordedExperiment, rows: int) -> str:
    trial_id = run.begin()
    for at in range(rows):
        run.report(trial_id, {"loss": at})
    return trial_id


def test_every_call_is_given_in_order_and_noted_once_it_is_taken(
    run: RecordedExperiment,
) -> None:
    trial_id = trial_of(run, 2)
    run.finish(trial_id)
    desk = Desk(run)
    desk.follow()
    assert desk.takes() == ["start", "result", "result", "complete"]
    mark = {"attempt": 1, "iteration": 2, "stage": 4, "rows": 2}
    assert desk.cursor == {trial_id: {"delivered": mark, "refused": []}}


def test_one_batch_is_under_way_at_a_time_and_a_window_of_the_journal_in_memory(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", 600)
    trial_of(run, 100)
    desk = Desk(run)
    for _ in range(5):
        desk.follow()
    assert len(desk.calls.batches) == 1
    assert len(desk.calls.batches[0]) < 10
    given = len(desk.takes())
    while given < 101:
        given += len(desk.takes())
    assert desk.tracker_process.wait_s is None


def test_after_a_failure_it_waits_and_gives_the_same_again_alone(run: RecordedExperiment) -> None:
    trial_of(run, 3)
    desk = Desk(run)
    desk.follow()
    desk.answer(BatchOutcome(taken=1, error="ConnectionError: away"), after_s=0.4)
    assert len(desk.calls.batches) == 1
    assert desk.tracker_process.wait_s == pytest.approx(0.1)
    desk.clock.at += 0.1
    desk.tracker_process.act()
    assert [call.mark.rows for call in desk.calls.batches[-1]] == [1]
    assert [words[0] for words in desk.said] == ["trouble"]
    desk.answer(BatchOutcome(taken=0, error="ConnectionError: away"))
    assert [words[0] for words in desk.said] == ["trouble"]


def test_what_is_refused_is_set_aside_after_some_tries(run: RecordedExperiment) -> None:
    trial_id = trial_of(run, 2)
    desk = Desk(run)
    desk.follow()
    refusal = BatchOutcome(taken=0, error="ValueError: no", is_refusal=True)
    desk.answer(BatchOutcome(taken=1, error="ValueError: no", is_refusal=True))
    desk.answer(refusal)
    desk.takes()
    assert desk.cursor[trial_id]["refused"][0]["from_iteration"] == 1


def test_a_tracker_that_does_not_answer_is_reported_once(run: RecordedExperiment) -> None:
    trial_of(run, 1)
    desk = Desk(run)
    desk.follow()
    assert desk.tracker_process.wait_s == 30
    for _ in range(3):
        desk.clock.at += 31
        desk.tracker_process.act()
    assert [words[0] for words in desk.said] == ["trouble"]
    assert "has not answered for 30 s" in desk.said[0][1]


def test_at_the_end_it_gives_up_in_time_and_reads_nothing_more(run: RecordedExperiment) -> None:
    trial_id = trial_of(run, 2)
    desk = Desk(run)
    desk.follow()
    run.report(trial_id, {"loss": 2})
    desk.answer(BatchOutcome(taken=2))
    run.layout.journal.joinpath("000000.log").unlink()
    desk.tracker_process.receive(["upto", 0, 1 << 30])
    desk.tracker_process.receive(["close", 5])
    desk.clock.at += 5
    desk.tracker_process.act()
    assert desk.tracker_process.is_done
    assert desk.said == [["done", False]]
    assert desk.cursor[trial_id]["delivered"]["iteration"] == 1


def test_what_is_held_until_the_end_is_acknowledged_by_it(run: RecordedExperiment) -> None:
    trial_id = trial_of(run, 2)
    desk = Desk(run)
    desk.follow()
    desk.takes(held=frozenset({trial_id}))
    desk.tracker_process.receive(["close", 5])
    desk.tracker_process.act()
    assert desk.calls.ends == 1
    desk.tracker_process.receive(["finished", BatchOutcome(taken=0)])
    assert desk.tracker_process.is_done
    assert desk.said[-1] == ["done", True]


def test_a_cursor_that_is_broken_means_that_everything_is_sent_again(
    run: RecordedExperiment,
) -> None:
    trial_of(run, 1)
    desk = Desk(run)
    desk.cursor_file.write_text("{")
    again = Desk(run)
    again.follow()
    assert "everything is sent again" in again.said[0][1]
    assert again.takes() == ["start", "result"]


def test_another_tracker_process_gives_only_what_was_not_acknowledged(
    run: RecordedExperiment,
) -> None:
    trial_id = trial_of(run, 2)
    desk = Desk(run)
    desk.follow()
    desk.takes()
    run.report(trial_id, {"loss": 9})
    again = Desk(run)
    again.follow()
    assert [(call.hook, call.mark.rows) for call in again.calls.batches[0]] == [
        ("on_trial_result", 3)
    ]


def begin_of(run: RecordedExperiment) -> Position:
    """Where another tracker process would begin to read."""
    job = job_of(run)
    data = json.loads(run.layout.tracker_cursor("T").read_text())
    accounts = DeliveryState(decode_accounts(data, job.experiment_id)).accounts
    return fold_for(accounts, job).position


def test_another_tracker_process_begins_at_a_snapshot_of_which_the_tracker_has_everything(
    run: RecordedExperiment,
) -> None:
    trial_id = trial_of(run, 2)
    run.report(trial_id, {"loss": 2}, checkpoint="committed")
    run.fail(trial_id)
    run.start(trial_id)
    desk = Desk(run)
    desk.follow()
    while desk.tracker_process.wait_s is not None:
        desk.takes()
    run.write_files(snapshot=True)
    taken = readable_end(run.layout.journal)
    run.report(trial_id, {"loss": 9})
    assert begin_of(run) == taken
    again = Desk(run)
    again.follow()
    assert [call.mark.rows for call in again.calls.batches[0]] == [4]


def test_a_snapshot_that_is_ahead_of_the_tracker_is_not_begun_at(run: RecordedExperiment) -> None:
    trial_id = trial_of(run, 2)
    desk = Desk(run)
    desk.follow()
    desk.takes()
    run.report(trial_id, {"loss": 9})
    run.write_files(snapshot=True)
    assert begin_of(run) == Position()
