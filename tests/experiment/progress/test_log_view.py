"""The output of a run in a log file: lines that are rare, and all that is new."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.experiment.progress.summary import NodesSummary, RankWait, Summary
from holdfast.experiment.progress.views import LogView, SilentView
from holdfast.experiment.progress.wording import first_failures, wait_lines
from holdfast.trial.trial import Status
from tests.experiment.progress.screens import DONE, FAILURE, SUMMARY, Clock, plain_lines, row

pytestmark = pytest.mark.usefixtures("terminal_size")

STORAGE = (
    "3 checkpoints (7 files, 12.3 MB) wait for storage, the oldest for 12s; "
    "4 of 9 artifacts 3.4 MB of 50.0 MB"
)


def test_a_log_file_gets_a_line_when_something_changed_but_not_too_often() -> None:
    stream, clock = io.StringIO(), Clock()
    view = LogView(stream, clock=clock)
    first = replace(SUMMARY, failures=(), storage=None)
    further = replace(first, rows=(replace(row(1, Status.RUNNING), iteration=4),))
    for now, summary in ((0, first), (5, further), (11, further), (60, further), (70, first)):
        clock.now = now
        view.update(summary)
    name, *states = plain_lines(stream)
    assert name == "digits: results in s3://bucket/digits"
    assert len(states) == 3
    assert states[0] == (
        "[1m 20s, about 2m 10s left] 40%, "
        "6 trials: 1 finished, 1 failed, 1 running, 3 not created yet; "
        "best acc=0.9 train_aaaaa_00000 at iteration 3: lr=0.01"
    )


def test_a_log_file_gets_each_failure_at_once_and_once() -> None:
    stream, clock = io.StringIO(), Clock()
    view = LogView(stream, clock=clock)
    view.update(replace(SUMMARY, failures=()))
    clock.now += 0.25
    # A message reports a trial that is retried.
    again = replace(FAILURE, final=False, retries=1)
    for failures in ((again,), (FAILURE,), (FAILURE,)):
        view.update(replace(SUMMARY, failures=failures))
    assert plain_lines(stream)[2:] == [
        "train_aaaaa_00004 failed at train.py:42 in train: ValueError: loss is nan, "
        "see /results/exp/dir_4/error.txt",
    ]


def test_a_resumed_run_does_not_repeat_its_earlier_failures() -> None:
    stream, clock = io.StringIO(), Clock()
    view = LogView(stream, clock=clock)
    earlier = replace(FAILURE, is_earlier=True)
    view.update(replace(SUMMARY, failures=(earlier,), is_resumed=True))
    name, *others = plain_lines(stream)
    assert name == "digits: resumed, results in s3://bucket/digits"
    assert not any("failed at" in line for line in others)
    # It resumed, and failed again.
    view.update(replace(SUMMARY, failures=(replace(FAILURE, attempt=2),), is_resumed=True))
    assert plain_lines(stream)[-1].startswith("train_aaaaa_00004 failed at train.py:42")
    assert list(first_failures(replace(SUMMARY, failures=(earlier,)))) == []


def told_at(stream: io.StringIO, summaries: Iterator[tuple[float, Summary]]) -> list[float]:
    """The seconds at which a line was written, after the first."""
    clock = Clock()
    view, told = LogView(stream, clock=clock), []
    for now, summary in summaries:
        clock.now, before = now, len(plain_lines(stream))
        view.update(summary)
        told += [now] * (len(plain_lines(stream)) > before)
    return told[1:]


def test_a_log_does_not_count_trials_before_the_restore_has_decided_about_them() -> None:
    stream = io.StringIO()
    view = LogView(stream)
    before = replace(SUMMARY, is_resumed=True, phase="starting a process that imports your code")
    view.update(before)
    assert stream.getvalue() == f"{SUMMARY.name}: resumed, results in {SUMMARY.path}\n"
    view.update(replace(before, phase=""))
    assert f"{sum(SUMMARY.counts.values())}" in stream.getvalue().partition("\n")[2]
    assert stream.getvalue().count("results in") == 1


def test_the_longer_a_run_lasts_the_rarer_are_the_lines_of_its_log() -> None:
    bare = replace(SUMMARY, failures=(), storage=None)

    def steps(elapsed_s: float) -> Iterator[tuple[float, Summary]]:
        for at in range(0, 500, 5):
            running = replace(row(1, Status.RUNNING), iteration=at)
            yield at, replace(bare, rows=(running,), elapsed_s=elapsed_s + at)

    assert told_at(io.StringIO(), steps(0.0))[:4] == [10, 20, 30, 40]
    assert told_at(io.StringIO(), steps(3000.0))[:3] == [65, 130, 195]
    assert told_at(io.StringIO(), steps(1e6))[:3] == [120, 240, 360]


def test_where_nothing_moves_a_log_still_says_so_every_five_minutes() -> None:
    bare = replace(SUMMARY, failures=(), storage=None)
    still = ((at, replace(bare, elapsed_s=float(at))) for at in range(0, 1000, 5))
    assert told_at(io.StringIO(), still) == [300, 600, 900]


def test_a_log_tells_what_a_lone_training_reports_and_which_rank_is_waited_for() -> None:
    stream = io.StringIO()
    alone = Summary(
        name="t",
        path="p",
        counts={Status.RUNNING: 1},
        total=1,
        rows=(replace(row(0, Status.RUNNING), last=30),),
        waits=(RankWait(name="train_0", ranks=(1, 3), waited_s=35.0),),
        elapsed_s=80.0,
        left_s=600.0,
        share=0.1,
    )
    LogView(stream).update(alone)
    assert plain_lines(stream)[1] == (
        "[1m 20s, about 10m 00s left] 10%, running, iteration 3 of 30; acc=0.5 loss=0.25; "
        "train_0: ranks 1, 3 have not reported; the others have waited for 35s"
    )
    short = replace(alone, waits=(RankWait(name="train_0", ranks=(1,), waited_s=4.0),))
    assert list(wait_lines(short)) == []


def test_what_a_run_waits_for_after_its_trials_is_reported_once_where_it_lasts() -> None:
    stream, clock = io.StringIO(), Clock()
    view = LogView(stream, clock=clock)
    view.update(replace(SUMMARY, failures=()))
    ended = replace(SUMMARY, failures=(), done=True)
    for phase in ("ending", "writing", *["waiting for storage"] * 6):
        clock.now += 1.5
        view.update(replace(ended, phase=phase))
    assert plain_lines(stream)[2:] == [f"[1m 20s] waiting for storage; {STORAGE}"]


def test_a_node_that_leaves_and_what_the_cluster_waits_for_are_logged_soon() -> None:
    stream, clock = io.StringIO(), Clock()
    view = LogView(stream, clock=clock)
    nodes = NodesSummary(here=2, most=2)
    quiet = replace(SUMMARY, failures=(), storage=None, nodes=nodes)
    view.update(quiet)
    clock.now += 11.0
    view.update(quiet)
    fewer = replace(nodes, here=1, left=(("b", "no beat for 10 s"),))
    view.update(replace(quiet, nodes=fewer, waiting="waiting for a node: job 7 is pending"))
    first, second = plain_lines(stream)[1:]
    assert first.endswith("; 2 of 2 nodes")
    assert second.endswith(
        "; 1 of 2 nodes; b has left: no beat for 10 s; waiting for a node: job 7 is pending"
    )


def test_a_queue_before_the_first_trial_is_logged_sooner() -> None:
    stream, clock = io.StringIO(), Clock()
    view = LogView(stream, clock=clock)
    begun = replace(SUMMARY, failures=(), rows=(), storage=None)
    view.update(begun)
    for _ in range(3):
        clock.now += 1.5
        view.update(replace(begun, waiting="2 of 2 nodes wait in the queue"))
    (line,) = plain_lines(stream)[2:]
    assert line.endswith("; 2 of 2 nodes wait in the queue")


def test_lines_of_workers_are_prefixed_each() -> None:
    stream = io.StringIO()
    LogView(stream).log("train pid=7", "one\ntwo\n")
    assert plain_lines(stream) == ["(train pid=7) one", "(train pid=7) two"]


def test_messages_have_their_level_before_them() -> None:
    stream = io.StringIO()
    view = LogView(stream)
    view.message("restored 3 trials", "info")
    view.message("storage is slow", "warning")
    assert plain_lines(stream) == ["restored 3 trials", "warning: storage is slow"]


def test_a_log_file_ends_with_the_table_the_causes_and_where_the_results_lie() -> None:
    stream = io.StringIO()
    LogView(stream).finish(DONE)
    lines = plain_lines(stream)
    assert lines[0].split() == ["trial", "status", "iter", "time", "acc", "lr", "width", "loss"]
    assert lines[2].split() == [
        *("train_aaaaa_00001", "interrupted"),
        *("3", "1m", "20s", "0.5", "0.01", "8", "0.25"),
    ]
    assert lines[4:] == [
        "1 more: 1 failed",
        "train_aaaaa_00004 failed at train.py:42 in train: ValueError: loss is nan",
        "  see /results/exp/dir_4/error.txt",
        "best acc=0.9 train_aaaaa_00000 at iteration 3: lr=0.01",
        "24 trials in 1m 20s: 23 finished, 1 failed. Results: s3://bucket/digits",
    ]


def test_many_failures_of_one_cause_are_reported_once() -> None:
    others = tuple(replace(FAILURE, name=f"train_{n}", trial_id=f"{n}") for n in range(5))
    others += (replace(FAILURE, trial_id="5", headline="ValueError: loss is nan"),)
    causes = tuple(replace(FAILURE, headline=f"KeyError: '{n}'") for n in "abcd")
    stream = io.StringIO()
    SilentView(stream).finish(replace(DONE, failures=(FAILURE, *others, *causes)))
    lines = plain_lines(stream)
    assert lines[0].endswith("ValueError: loss is nan (and 6 more trials)")
    assert len(lines) == 7
    assert lines[-1] == "  and 2 other causes"


def test_a_stream_that_knows_only_ascii_is_written_to() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    LogView(stream).message("naïve", "info")
    assert raw.getvalue() == b"na?ve\n"
