"""Attempts and the timeline, from the records of a journal that are mostly not decoded."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.records.journal import pack
from holdfast.experiment.records.view import Condition
from holdfast.results.page.attempts import attempts_of
from holdfast.results.page.followed_records import hear_journal
from holdfast.results.page.happened import Attempt
from holdfast.results.page.history import History
from holdfast.results.page.timeline import concurrency, timeline_of
from holdfast.scheduler.codec import Record
from holdfast.scheduler.events import (
    ConfigAdded,
    EndOrdered,
    Exited,
    LimitChanged,
    NoteWritten,
    PauseRequested,
    Resumed,
    SamplesAdded,
    TrialStopOrdered,
)
from holdfast.syncer.journal.journal import Journal, read
from holdfast.syncer.journal.segment import framed, readable_end
from holdfast.trial.config import FailureConfig, ResumeType
from holdfast.trial.trial import Status
from tests.rig.runs.dense_runs import RUNS, dense_run
from tests.rig.runs.recorded import RecordedExperiment


def heard(records: list[Record], *, in_frames: bool = False) -> History:
    history = History()
    payloads = [pack(event, now, answers) for event, now, answers in records]
    if not in_frames:
        for payload in payloads:
            history.hear(payload)
        return history
    data, dice, rest = b"".join(map(framed, payloads)), random.Random(0), b""
    while data:  # blocks end inside records
        size = dice.choice([1, 100, 1_000])
        rest, data = rest + data[:size], data[size:]
        rest = rest[history.hear_frames(rest) :]
    assert not rest
    return history


@pytest.mark.parametrize("name", RUNS)
def test_the_attempts_are_those_of_the_machine(name: str) -> None:
    for seed in range(3):
        run = dense_run(name, seed)
        records = run.to_the_end()
        history, machine = heard(records), run.run.machine
        for trial_id, trial in machine.trials.items():
            known = history.attempts_of(trial_id)
            assert [one.attempt for one in known] == list(range(1, trial.attempt + 1))
            assert known[-1].to_iteration in (None, trial.iteration)
            assert known[-1].from_iteration in (None, trial.resumed_from)
            assert all(one.end and one.ended_at for one in known[:-1])
            shown = attempts_of(trial, known, machine.spec, is_live=False, last_at=machine.now)
            ends = [one["end"] for one in shown]
            if trial.status is Status.TERMINATED:
                assert ends[-1] in ("finished", "pruned", "user")
            assert "running" not in ends
            assert all(one["why"] for one in shown)


def everything(history: History) -> object:
    attempts = {trial: list(history.attempts_of(trial)) for trial in history.attempts}
    return attempts, history.restores, history.happenings, history.running, history.now


def test_frames_and_single_records_say_the_same() -> None:
    for name in RUNS:
        records = dense_run(name, 1).to_the_end()
        assert everything(heard(records, in_frames=True)) == everything(heard(records))


def test_a_journal_of_several_segments_is_heard_up_to_a_position(tmp_path: Path) -> None:
    records = dense_run("fifo", 2).to_the_end()
    journal = Journal(tmp_path, segment_bytes=4_000)
    for event, now, answers in records:
        journal.append([pack(event, now, answers)])
    journal.close()
    end = readable_end(tmp_path)
    assert end.segment > 1
    history = History()
    hear_journal(tmp_path, 0, end, history)
    assert everything(history) == everything(heard(records))
    with open(tmp_path / "000001.log", "r+b") as file:  # damage in the middle
        file.seek(2_000)
        file.write(b"\0" * 100)
    end = readable_end(tmp_path)
    before = [payload for payload, _ in read(tmp_path)]
    assert end.segment == 1
    damaged, expected = History(), History()
    hear_journal(tmp_path, 0, end, damaged)
    for payload in before:
        expected.hear(payload)
    assert everything(damaged) == everything(expected)


def test_why_each_attempt_ended(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run", failure=FailureConfig(max_failures=3))
    trial_id = run.begin()
    run.report(trial_id, {"loss": 1.0}, checkpoint="committed")
    run.report(trial_id, {"loss": 0.5})
    run.fail(trial_id, message="bad step")
    run.start(trial_id)
    run.report(trial_id, {"loss": 0.6})
    run.add(Exited(trial_id=trial_id, attempt=2, cause="was killed by SIGKILL"))
    run.start(trial_id)
    run.add(Exited(trial_id=trial_id, attempt=3, cause="got a SIGTERM", kind="preempted"))
    run.start(trial_id)
    run.finish(trial_id)
    first, second, third, last = shown_attempts(run, trial_id)
    assert first["end"] == "failed"
    assert (first["from_iteration"], first["to_iteration"]) == (0, 2)
    assert first["why"] == "ValueError: bad step; it ran again from iteration 1"
    assert first["error"]["where"] == "train.py:7 in train"
    assert "ValueError: bad step" in first["error"]["traceback"]
    assert second["end"] == "lost"
    assert second["why"].startswith("WorkerLost: the worker process 1002 was killed by SIGKILL")
    assert (second["from_iteration"], second["to_iteration"]) == (1, 2)
    assert third["end"] == "preempted"
    assert last["end"] == "finished"
    assert last["why"] == "it finished at iteration 1: its function returned"
    assert first["ended_at"] < second["began_at"] < second["ended_at"] < last["began_at"]


def test_the_running_attempt_has_no_end(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run")
    trial_id = run.begin()
    run.report(trial_id, {"loss": 1.0})
    (live,) = shown_attempts(run, trial_id, is_live=True)
    assert (live["end"], live["ended_at"], live["to_iteration"]) == ("running", None, 1)
    (cut,) = shown_attempts(run, trial_id, is_live=False)
    assert (cut["end"], cut["ended_at"]) == ("interrupted", run.now)
    assert "starts over with a restore" in cut["why"]


def test_a_restore_says_what_ran_again(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run", num_samples=2)
    saved, unsaved = run.begin(), run.begin()
    for at in range(1, 6):
        run.report(saved, {"loss": 1.0}, checkpoint="committed" if at == 3 else "")
    run.report(unsaved, {"loss": 1.0})
    run.now += 120
    run.add(Resumed(epoch=2, capacity={"CPU": 1000}))
    assert restored(run) == (
        "Restored after 2m 01s without a process; 2 trials that had been running did not report "
        "again so far."
    )
    for trial_id in (saved, unsaved):
        run.start(trial_id)
        run.report(trial_id, {"loss": 1.0})
    assert restored(run) == (
        "Restored after 2m 01s without a process; 1 trial resumed from a checkpoint (00000 from "
        "iteration 3), 1 started over without a checkpoint, 3 iterations (1.5s of training) ran "
        "again."
    )
    kinds = [(entry["kind"], entry["epoch"]) for entry in timeline(run)]
    assert kinds == [("began", 1), ("interrupted", 1), ("restored", 2), ("interrupted", 2)]


def test_a_restore_says_how_many_failed_trials_began_again(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run", num_samples=2)
    failed, again = run.begin(), run.begin()
    for trial_id in (failed, again):
        run.add(Exited(trial_id=trial_id, attempt=1, cause="was killed"))
    run.now += 60
    run.add(Resumed(epoch=2, capacity={"CPU": 1000}, errored=ResumeType.RESTART))
    run.start(again)
    assert restored(run) == (
        "Restored after 1m 01s without a process; no trial was running, 1 trial whose last "
        "attempt had failed began again."
    )


def test_an_ordered_end_is_no_crash(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run")
    trial_id = run.begin()
    run.report(trial_id, {"loss": 1.0}, checkpoint="committed")
    run.add(EndOrdered(reason="interrupt", message="Ctrl-C"))
    run.add(Exited(trial_id=trial_id, attempt=1, cause="got a SIGTERM"))
    run.now += 60
    run.add(Resumed(epoch=2, capacity={"CPU": 1000}))
    run.start(trial_id)
    run.report(trial_id, {"loss": 1.0})
    first, _ = shown_attempts(run, trial_id, is_live=True)
    assert first["end"] == "interrupted"
    assert first["why"].startswith("Ctrl-C")
    texts = [entry["text"] for entry in timeline(run, Condition.LIVE)]
    assert texts[1:] == [
        "End of the run: Ctrl-C.",
        "Restored after 1m 01s without a process; 1 trial resumed from a checkpoint (00000 from "
        "iteration 1), no reported iteration ran again.",
    ]


def test_what_people_did_is_told(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run", num_samples=4)
    trial_id = run.begin()
    run.add(NoteWritten(trial_id=trial_id, text="looks <b>good</b>", by="ann (page)"))
    run.add(LimitChanged(max_concurrent=2, by="ann (page)"))
    run.add(SamplesAdded(count=3, by="ann (page)"))
    run.add(ConfigAdded(config={"lr": 0.1}, by="ann (command)"))
    run.add(PauseRequested(trial_id=trial_id, by="ann (page)"))
    run.add(PauseRequested(trial_id=trial_id, by="ann (page)", now=True))
    run.add(TrialStopOrdered(trial_id=trial_id, by="ann (page)"))
    run.finish(trial_id)
    assert [entry["text"] for entry in timeline(run, Condition.LIVE)[1:]] == [
        f"ann (page) wrote on trial {trial_id}: looks <b>good</b>",
        "ann (page) set the limit to 2 trials at once.",
        "ann (page) added 3 trials.",
        "ann (command) added a config to try next: lr=0.1.",
        f"ann (page) ordered a pause of trial {trial_id}.",
        f"ann (page) paused trial {trial_id} at once.",
        f"ann (page) stopped trial {trial_id}.",
    ]
    (only,) = shown_attempts(run, trial_id, is_live=True)
    assert only["end"] == "user"
    assert "ann (page)" in only["why"]


def test_how_many_trials_ran(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run")
    first, second = run.begin(), run.begin()
    run.finish(first)
    run.finish(second)
    assert [count for _, count in concurrency(history_of(run))] == [1, 2, 1, 0]


def test_what_is_not_a_record_is_left_out() -> None:
    history = History()
    for payload in (b"", b"\x93", b"\x93\xa8Reported", b"\xc1" * 40, b"\x93\xa7Started\x01\x90"):
        history.hear(payload)
    assert not history.attempts


def history_of(run: RecordedExperiment) -> History:
    history = History()
    hear_journal(run.layout.journal, 0, readable_end(run.layout.journal), history)
    return history


def shown_attempts(
    run: RecordedExperiment, trial_id: str, *, is_live: bool = False
) -> list[dict[str, Any]]:
    known: list[Attempt] = list(history_of(run).attempts_of(trial_id))
    machine = run.machine
    return attempts_of(
        run.trial(trial_id), known, machine.spec, is_live=is_live, last_at=machine.now
    )


def timeline(
    run: RecordedExperiment, state: Condition = Condition.INTERRUPTED
) -> list[dict[str, Any]]:
    return timeline_of(history_of(run), run.machine, state, lambda: "1 finished")


def restored(run: RecordedExperiment) -> str:
    (text,) = (entry["text"] for entry in timeline(run) if entry["kind"] == "restored")
    return str(text)
