"""Attempts and the timeline, as the machine knows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.records.view import Condition
from holdfast.results.page.history import all_attempts, attempts_of, concurrency, timeline_of
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import (
    ConfigAdded,
    EndOrdered,
    Exited,
    Happening,
    LimitChanged,
    NoteWritten,
    PauseRequested,
    Resumed,
    ResumeRequested,
    SamplesAdded,
    TrialStopOrdered,
)
from holdfast.scheduler.machine import Machine, from_snapshot
from holdfast.trial.config import FailureConfig, ResumeType
from holdfast.trial.events import Started
from holdfast.trial.trial import Status
from tests.rig.runs.dense_runs import RUNS, dense_run
from tests.rig.runs.recorded import RecordedExperiment


@pytest.mark.parametrize("name", RUNS)
def test_each_attempt_of_a_trial_is_known_and_says_why_it_ended(name: str) -> None:
    for seed in range(3):
        run = dense_run(name, seed).to_the_end().run
        records, machine = run.events, run.machine
        begun = {
            (event.trial_id, event.attempt)
            for event, _, _ in records
            if isinstance(event, Started)
        }
        for trial_id, trial in machine.trials.items():
            known = all_attempts(trial)
            assert [one.attempt for one in known] == list(range(1, trial.attempt + 1))
            assert {(trial_id, one.attempt) for one in known if one.began_at} == {
                one for one in begun if one[0] == trial_id
            }
            times = [at for one in known for at in (one.began_at, one.ended_at) if at]
            assert times == sorted(times)
            shown = attempts_of(trial, machine.spec, is_live=False, last_at=machine.now)
            ends = [one["end"] for one in shown]
            if trial.status is Status.TERMINATED:
                assert ends[-1] in ("finished", "pruned", "user")
            assert "running" not in ends
            assert all(one["why"] for one in shown)
        again = from_snapshot(snapshot(machine))
        assert again.happened == machine.happened
        assert {one: trial.attempts for one, trial in again.trials.items()} == {
            one: trial.attempts for one, trial in machine.trials.items()
        }


def test_of_very_many_attempts_the_first_and_the_newest_are_kept(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run", failure=FailureConfig(max_failures=-1))
    trial_id = run.begin()
    for _ in range(130):
        run.report(trial_id, {"loss": 1.0})
        run.fail(trial_id, message="x" * 10)
        run.start(trial_id)
    numbers = [one["attempt"] for one in shown_attempts(run, trial_id, is_live=True)]
    assert numbers == [1, *range(32, 132)]


def test_what_a_damaged_file_says_happened_is_shown_as_far_as_it_makes_sense() -> None:
    machine = Machine()
    names = ("Begun", "LimitChanged", "NodeLeaving", "ConfigAdded", "NoteWritten", "Unknown")
    machine.happened = tuple(
        Happening(
            name=name, at=1.0, since=1.0, epoch=1,
            facts={"seconds": "x", "by": 7, "config": [], "num_samples": None, "node": {}},
        )
        for name in names
    )  # fmt: skip
    shown = [one["text"] for one in timeline_of(machine, Condition.LIVE, lambda: "")]
    assert shown == [
        "The experiment began.",
        "Somebody removed the limit of trials at once.",
        "Node  said that it leaves.",
        "Somebody added a config to try next: drawn from the space.",
        "Somebody removed the note on trial .",
    ]


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


def test_a_person_pauses_and_resumes_a_trial(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run")
    at_once, later = run.begin(), run.begin()
    run.add(PauseRequested(trial_id=at_once, by="ann (page)", now=True))
    run.add(PauseRequested(trial_id=later, by="ben (command)"))
    run.report(later, {"loss": 1.0}, checkpoint="committed")
    for trial_id in (at_once, later):
        run.add(Exited(trial_id=trial_id, attempt=1, cause="ended"))
    for trial_id, by in ((at_once, "ann (page)"), (later, "ben (command)")):
        who, at = run.machine.paused_by(trial_id) or ("", 0.0)
        assert (who, run.now - at < 60) == (by, True)
        (paused,) = shown_attempts(run, trial_id, is_live=True)
        assert (paused["end"], paused["why"].partition(";")[0]) == ("paused", f"paused by {by}")
    run.add(ResumeRequested(trial_id=at_once, by="ann (page)"))
    run.start(at_once)
    first, second = shown_attempts(run, at_once, is_live=True)
    assert (first["why"], second["end"]) == ("paused by ann (page); it started over", "running")
    assert run.machine.paused_by("nobody") is None


def test_how_many_trials_ran(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "run")
    first, second = run.begin(), run.begin()
    run.finish(first)
    run.finish(second)
    assert [count for _, count in concurrency(run.machine.trials.values())] == [1, 2, 1, 0]


def shown_attempts(
    run: RecordedExperiment, trial_id: str, *, is_live: bool = False
) -> list[dict[str, Any]]:
    machine = run.machine
    return attempts_of(run.trial(trial_id), machine.spec, is_live=is_live, last_at=machine.now)


def timeline(
    run: RecordedExperiment, state: Condition = Condition.INTERRUPTED
) -> list[dict[str, Any]]:
    return timeline_of(run.machine, state, lambda: "1 finished")


def restored(run: RecordedExperiment) -> str:
    (text,) = (entry["text"] for entry in timeline(run) if entry["kind"] == "restored")
    return str(text)
