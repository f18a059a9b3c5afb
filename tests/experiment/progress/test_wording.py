"""The words for counts, storage and failures, and the cells of the table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.progress.summary import StorageAge
from holdfast.experiment.progress.wording import (
    HeldNews,
    Retries,
    Retry,
    closing_text,
    confirmation_text,
    path_of,
    pointer,
    retry_of,
    retry_text,
    storage_text,
)
from holdfast.scheduler.events import (
    Event,
    Exited,
    ExperimentSpec,
    PauseRequested,
    Raised,
    ResumeRequested,
    SearchEnded,
)
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.best import Confirmed
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import Failure
from holdfast.trial.events import Reported
from holdfast.trial.trial import CheckpointRecord, Place, Status, Trial, TrialSpec
from tests.experiment.progress.screens import DONE, SUMMARY

TRACEBACK = """Traceback (most recent call last):
  File "/home/me/train.py", line 42, in train
    raise ValueError("bad")
ValueError: bad


After it, rank 1: ConnectionError: gone
Traceback (most recent call last):
  File "/home/me/other.py", line 7, in send
    raise ConnectionError("gone")
"""
BAD = Failure(kind="user", type_name="ValueError", message="bad", traceback=TRACEBACK)
RAISED = Raised(trial_id="t_0", attempt=1, failure=BAD)
CHECKPOINT = CheckpointRecord(index=3, iteration=4, attempt=1, files=1, size_bytes=1)
SPEC = TrialSpec(trial_id="t_0", index=0, name="train_t_0", dirname="dir_0", config={})
BEFORE = Trial(
    spec=SPEC,
    status=Status.RUNNING,
    attempt=1,
    checkpoints=(CHECKPOINT,),
    place=Place(pid=77, hostname="vm"),
)
WAITS = replace(BEFORE, status=Status.PENDING, error=BAD, failures=1)


def spec(**failure: Any) -> ExperimentSpec:
    return ExperimentSpec(
        experiment_id="e",
        run="t",
        trainable="train",
        seed=0,
        failure=FailureConfig(**{"max_failures": 2, **failure}),
    )


def retry(event: Event | None, before: Trial | None, after: Trial | None, **failure: Any) -> Any:
    return retry_of(event, before, after, spec(**failure))


def test_one_that_starts_again_at_once_is_reported_although_its_error_is_forgotten() -> None:
    exited = Exited(trial_id="t_0", attempt=1, cause="was killed by SIGKILL")
    again = replace(BEFORE, status=Status.STARTING, attempt=2, failures=1, checkpoints=())
    told = retry_text(retry(exited, BEFORE, again, max_failures=-1), 1, "/r")
    assert told == (
        "train_t_0 failed: WorkerLost: the worker process 77 was killed by SIGKILL. Retrying: "
        "attempt 2, from the start.\n  see /r/dir_0/stderr"
    )


def test_a_checkpoint_that_may_be_gone_with_its_node_is_not_promised() -> None:
    exited = Exited(trial_id="t_0", attempt=1, cause="was lost with node a")
    place = Place(pid=77, hostname="vm", nodes=("a",))
    for committed, start in (
        (False, "checkpoint_000003 (iteration 4), if storage has it."),
        (True, "checkpoint_000003 (iteration 4)."),
    ):
        saved = replace(CHECKPOINT, node="a", committed=committed)
        before = replace(BEFORE, place=place, checkpoints=(saved,))
        again = replace(before, status=Status.STARTING, attempt=2, failures=1)
        told = retry_text(retry(exited, before, again), 1, "/r")
        assert f"attempt 2 of 3, from {start}\n" in told


def test_a_retry_that_waits_says_for_how_long() -> None:
    seen = retry(RAISED, BEFORE, WAITS, retry_wait_s=60.0)
    assert 30.0 <= seen.wait_s <= 60.0
    assert "Retrying in " in retry_text(seen, 1, "/r")


def test_a_checkpoint_that_was_lost_counts_as_no_failure() -> None:
    failure = Failure(kind="checkpoint", type_name="CheckpointLost", message="broken")
    raised = Raised(trial_id="t_0", attempt=1, failure=failure)
    seen = retry(raised, BEFORE, replace(WAITS, failures=0, error=failure))
    assert "Retrying: not counted as a failure, from" in retry_text(seen, 1, "/r")


def test_what_is_not_a_retry_is_not_reported_as_one() -> None:
    reported = Reported(
        trial_id="t_0",
        attempt=1,
        iteration=1,
        metrics={},
        timestamp=0.0,
        time_this_iter_s=0.0,
        time_total_s=0.0,
    )
    assert retry(reported, BEFORE, replace(BEFORE, iteration=1)) is None
    assert retry(None, BEFORE, WAITS) is None
    assert retry(RAISED, BEFORE, BEFORE) is None
    assert retry(RAISED, BEFORE, replace(WAITS, status=Status.ERROR)) is None
    # It was asked to end with its run.
    assert retry(RAISED, BEFORE, replace(BEFORE, status=Status.PENDING)) is None
    # The machine reports a group that continues with one worker fewer.
    shrunk = replace(WAITS, failures=0, shrunk_to=2, shrunk_until=9.0)
    assert retry(RAISED, BEFORE, shrunk) is None


def test_of_one_cause_three_are_reported_then_the_tenth_and_the_hundredth() -> None:
    retries = Retries()
    one: Retry = retry(RAISED, BEFORE, WAITS)
    told = []
    for number in range(1, 121):
        of_another_step = replace(one, headline=f"ValueError: bad at step {number}")
        count, is_told = retries.count(of_another_step)
        assert count == number
        told += [number] * is_told
    assert told == [1, 2, 3, 10, 100]
    other = replace(one, where="train.py:50 in evaluate")
    assert retries.count(other) == (1, True)
    assert retries.total == 121
    assert "This is retry 10 with this cause; not every one is shown" in retry_text(one, 10, "/r")


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ({"err.log": "last words"}, "see {0}/err.log"),
        ({"err.log": "", "out.log": "epoch 3"}, "its err.log is empty, see {0}/out.log"),
        ({"err.log": "", "out.log": ""}, "it printed nothing to err.log and out.log"),
        ({}, "see {0}/err.log"),  # not on this machine
    ],
)
def test_no_one_is_sent_to_an_empty_file(
    tmp_path: Path, printed: dict[str, str], told: str
) -> None:
    folder = tmp_path / BEFORE.spec.dirname
    folder.mkdir()
    for name, text in printed.items():
        (folder / name).write_text(text)
    exited = Exited(trial_id="t_0", attempt=1, cause="was killed by SIGKILL")
    again = replace(BEFORE, status=Status.STARTING, attempt=2, failures=1, checkpoints=())
    logs = replace(spec(), options={"log_to_file": ["out.log", "err.log"]})
    retry = retry_of(exited, BEFORE, again, logs)
    assert retry is not None
    shown = retry_text(retry, 1, str(tmp_path))
    assert shown.splitlines()[1] == f"  {told.format(folder)}"


def test_the_output_of_a_trial_on_a_node_is_where_it_is_stored() -> None:
    stored = "s3://bucket/exp?endpoint_override=http://s3"
    at = partial(path_of, here="/here/exp", stored=stored)
    assert at("t/stderr", on_node=True) == "s3://bucket/exp/t/stderr?endpoint_override=http://s3"
    assert at("t/error.txt", on_node=True) == "/here/exp/t/error.txt"
    assert at("t/stderr", on_node=False) == "/here/exp/t/stderr"
    assert at("", on_node=True) == ""


def test_what_a_trial_has_printed_on_a_node_comes_later(tmp_path: Path) -> None:
    for name in ("stderr", "stdout"):
        (tmp_path / name).write_text("")
    log, other = str(tmp_path / "stderr"), str(tmp_path / "stdout")
    assert pointer(log, other, node="on node b") == (
        f"see {log}, which has what its node sends of it"
    )


NEWS = HeldNews(resume="holdfast resume /runs/a", stop="holdfast stop /runs/a")


def test_a_run_in_which_only_paused_trials_are_left_says_what_to_do() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    run.suggest()
    run.handle(SearchEnded())
    run.start("t0")
    run.handle(PauseRequested(trial_id="t1", by="ann"))
    assert NEWS.after(run.machine) == []  # the order was answered already
    run.handle(PauseRequested(trial_id="t0", by="ann"))
    run.report("t0", checkpoint=True)
    assert NEWS.after(run.machine) == []
    run.returns("t0")
    run.exits("t0")
    assert NEWS.after(run.machine) == ["trial t0 is paused at iteration 1"]
    assert NEWS.waiting(run.machine) == (
        "2 trials are paused: holdfast resume /runs/a TRIAL, or holdfast stop /runs/a"
    )
    run.handle(ResumeRequested(trial_id="t0", by="ann"))
    assert NEWS.waiting(run.machine) == ""
    run.start("t0")
    run.ends("t0")
    assert NEWS.waiting(run.machine).startswith("1 trial is paused: ")


def test_the_last_line_counts_trials_time_and_failures() -> None:
    assert closing_text(DONE) == "24 trials in 1m 20s: 23 finished, 1 failed"
    one = replace(DONE, counts={Status.PENDING: 1})
    assert closing_text(one) == "6 trials in 1m 20s: 1 queued, 5 not created"
    assert closing_text(replace(one, total=1)) == "1 trial in 1m 20s: 1 queued"
    assert closing_text(replace(DONE, counts={})) == "6 trials in 1m 20s: 6 not created"


@pytest.mark.parametrize(
    ("storage", "text"),
    [
        (None, ""),
        (StorageAge(), ""),
        (StorageAge(trouble="the disk is full"), "the disk is full"),
        (StorageAge(oldest_s=4.0), "storage has everything up to 4.0s ago"),
        (
            StorageAge(oldest_s=400.0),
            "storage has everything up to 6m 40s ago, too long: storage is slow or does "
            "not answer",
        ),
        (
            StorageAge(oldest_s=61.0, checkpoints=1, files=1, pending_bytes=999),
            "1 checkpoint (1 file, 999 B) waits for storage, the oldest for 1m 01s, too long: "
            "storage is slow or does not answer",
        ),
        (
            StorageAge(oldest_s=61.0, checkpoints=2, files=4, trouble="no answer"),
            "2 checkpoints (4 files, 0 B) wait for storage, the oldest for 1m 01s; no answer",
        ),
    ],
)
def test_what_is_not_in_storage_yet_is_reported_with_its_age(
    storage: StorageAge | None, text: str
) -> None:
    assert storage_text(replace(SUMMARY, storage=storage)) == text


@pytest.mark.parametrize(
    ("tied", "named"),
    [(1, "trial t_1"), (2, "trials t_1 and t_2"), (3, "trials t_1, t_2 and t_3")],
)
def test_the_trials_that_the_best_is_not_shown_better_than_are_a_list(
    tied: int, named: str
) -> None:
    found = [
        Confirmed(
            trial_id=f"t_{at}", value=1, values=(1, 1), mean=1, low=1, high=1, is_tied=at > 0
        )
        for at in range(tied + 1)
    ]
    text = confirmation_text(found, replace(spec(), confirm=2))
    assert text == f"1 to 1 in 2 fresh runs, 1 in the search; not shown better than {named}"
