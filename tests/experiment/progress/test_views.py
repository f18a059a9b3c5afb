"""The output of a run in a terminal, a log file and a notebook."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.experiment.callbacks.trial_view import Surroundings, Views
from holdfast.experiment.progress.log_view import LogView, SilentView
from holdfast.experiment.progress.node_wording import wait_lines
from holdfast.experiment.progress.notebook_view import NotebookView, in_notebook
from holdfast.experiment.progress.result_lines import ResultLines
from holdfast.experiment.progress.summary import (
    BestTrial,
    FailedTrial,
    NodesSummary,
    RankWait,
    StorageAge,
    Summary,
    TrialRow,
    UploadProgress,
)
from holdfast.experiment.progress.terminal_view import TerminalView
from holdfast.experiment.progress.trial_table import table_of
from holdfast.experiment.progress.views import ProgressView, UnfailingView, choose_view
from holdfast.experiment.progress.wording import (
    closing_text,
    counts_text,
    first_failures,
    storage_text,
)
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.trial import Status, Trial, TrialSpec

FAILURE = FailedTrial(
    trial_id="aaaaa_00004",
    attempt=1,
    name="train_aaaaa_00004",
    headline="ValueError: loss is nan",
    where="train.py:42 in train",
    error_file="/results/exp/dir_4/error.txt",
    retries=0,
    final=True,
)


def row(index: int, status: Status, acc: float = 0.5) -> TrialRow:
    return TrialRow(
        trial_id=f"aaaaa_{index:05}",
        name=f"train_aaaaa_{index:05}",
        status=status,
        params={"lr": 0.01, "net/width": 8},
        iteration=3,
        time_total_s=80.0,
        metrics={"acc": acc, "loss": 0.25},
    )


SUMMARY = Summary(
    name="digits",
    path="s3://bucket/digits",
    counts={Status.RUNNING: 1, Status.TERMINATED: 1, Status.ERROR: 1},
    total=6,
    rows=(row(1, Status.RUNNING), row(0, Status.TERMINATED, 0.9)),
    hidden={Status.ERROR: 1},
    metrics=("acc", "loss"),
    params=("lr", "net/width"),
    best=BestTrial(
        trial_id="aaaaa_00000",
        name="train_aaaaa_00000",
        metric="acc",
        value=0.9,
        params={"lr": 0.01},
        iteration=3,
    ),
    failures=(FAILURE,),
    elapsed_s=80.0,
    left_s=130.0,
    share=0.4,
    storage=StorageAge(
        oldest_s=12.0,
        checkpoints=3,
        files=7,
        pending_bytes=12_300_000,
        upload=UploadProgress(
            name="4 of 9 artifacts", done_bytes=3_400_000, total_bytes=50_000_000
        ),
    ),
)
STORAGE = (
    "3 checkpoints (7 files, 12.3 MB) wait for storage, the oldest for 12s; "
    "4 of 9 artifacts 3.4 MB of 50.0 MB"
)
DONE = replace(
    SUMMARY, counts={Status.TERMINATED: 23, Status.ERROR: 1}, done=True, storage=StorageAge()
)


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that claims to be a terminal; `screen` is what its reader would see."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        """The lines after all cursor movements and erasures that rich uses."""
        lines, at = [""], 0
        for sign in re.findall(r"\x1b\[\d*[A-Za-z]|\x1b\[[\d;?]*[a-z]|.|\n|\r", self.getvalue()):
            if sign == "\x1b[2K" or sign == "\r":
                lines[at] = "" if sign == "\x1b[2K" else lines[at]
            elif sign == "\n":
                at += 1
                lines += [""] * (at == len(lines))
            elif re.fullmatch(r"\x1b\[\d*A", sign):
                at -= int(sign[2:-1] or 1)
            elif not sign.startswith("\x1b"):
                lines[at] += sign
        return [line.rstrip() for line in lines]


@pytest.fixture(autouse=True)
def terminal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.delenv("NO_COLOR", raising=False)


CALM = replace(SUMMARY, failures=())


def live(terminal: Terminal) -> TerminalView:
    view = TerminalView(terminal, clock=Clock(), spent=lambda: 0.0)
    view.start()
    return view


# -- wording ----------------------------------------------------------------------------------


def test_trials_that_do_not_exist_yet_are_distinguished_from_those_that_wait() -> None:
    assert counts_text(SUMMARY) == "6 trials: 1 finished, 1 failed, 1 running, 3 not created yet"


def test_without_a_total_only_what_is_there_is_counted() -> None:
    assert counts_text(replace(SUMMARY, total=None)) == "1 finished, 1 failed, 1 running"


def test_the_last_line_counts_trials_time_and_failures() -> None:
    assert closing_text(DONE) == "24 trials in 1m 20s: 23 finished, 1 failed"
    one = replace(DONE, counts={Status.PENDING: 1})
    assert closing_text(one) == "6 trials in 1m 20s: 1 queued, 5 not created"
    assert closing_text(replace(one, total=1)) == "1 trial in 1m 20s: 1 queued"
    assert closing_text(replace(DONE, counts={})) == "6 trials in 1m 20s: 6 not created"


# -- a log file -------------------------------------------------------------------------------


def plain_lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


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
        *("train_aaaaa_00001", "was", "RUNNING"),
        *("3", "1m", "20s", "0.5", "0.01", "8", "0.25"),
    ]
    assert lines[4:] == [
        "1 more: 1 failed",
        "train_aaaaa_00004 failed at train.py:42 in train: ValueError: loss is nan",
        "  see /results/exp/dir_4/error.txt",
        "best acc=0.9 train_aaaaa_00000 at iteration 3: lr=0.01",
        "24 trials in 1m 20s: 23 finished, 1 failed. Results: s3://bucket/digits",
    ]


def test_columns_whose_names_end_alike_can_be_distinguished() -> None:
    alike = replace(DONE, metrics=("val/loss", "train/loss", "lr"), params=("net/lr", "opt/lr"))
    headers, _ = table_of(replace(alike, params=(*alike.params, "lr", "opt/beta")))
    assert headers[4:] == [
        *("val/loss", "net/lr", "opt/lr", "config/lr", "beta", "train/loss", "lr"),
    ]


def test_none_is_a_value_and_a_parameter_that_does_not_apply_is_empty() -> None:
    given: list[dict[str, Any]] = [{"flag": None}, {"depth": 3}]
    rows = tuple(
        replace(row, params=params) for row, params in zip(DONE.rows, given, strict=False)
    )
    headers, lines = table_of(replace(DONE, rows=rows, params=("flag", "depth")))
    at = headers.index("flag")
    assert [line[at : at + 2] for line in lines] == [["None", ""], ["", "3"]]


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


# -- silence ----------------------------------------------------------------------------------


def test_silence_is_broken_by_errors_only() -> None:
    stream = io.StringIO()
    view = choose_view(0, stream, {}, notebook=True)
    view.start()
    view.update(SUMMARY)
    view.log("train pid=7", "hello")
    view.message("slow", "warning")
    assert stream.getvalue() == ""
    view.message("no more space", "error")
    view.finish(DONE)
    assert plain_lines(stream) == [
        "no more space",
        "train_aaaaa_00004 failed at train.py:42 in train: ValueError: loss is nan",
        "  see /results/exp/dir_4/error.txt",
    ]


# -- a terminal -------------------------------------------------------------------------------


def test_a_terminal_shows_progress_the_table_the_best_failures_and_uploads() -> None:
    terminal = Terminal()
    view = live(terminal)
    view.update(SUMMARY)
    # The failure is above the table, where it stays and can be copied.
    assert terminal.screen[:2] == [
        "train_aaaaa_00004 failed at train.py:42 in train: ValueError: loss is nan",
        "  see /results/exp/dir_4/error.txt",
    ]
    screen = terminal.screen[2:]
    assert screen[0] == "digits  1m 20s, about 2m 10s left"
    assert re.fullmatch(
        r"[━╸]{10,} +40% +6 trials: 1 finished, 1 failed, 1 running, 3 not created yet", screen[1]
    )
    assert screen[2].split()[:6] == ["trial", "status", "iter", "time", "acc", "lr"]
    assert screen[3].split()[:2] == ["aaaaa_00001", "RUNNING"]
    assert screen[4].split()[:2] == ["aaaaa_00000", "TERMINATED"]
    assert screen[5:9] == [
        "… 1 more: 1 failed",
        "best  acc=0.9 train_aaaaa_00000 at iteration 3: lr=0.01",
        "train_aaaaa_00004 failed at train.py:42 in train: ValueError: loss is nan",
        "3 checkpoints (7 files, 12.3 MB) wait for storage, the oldest for 12s; 4 of 9 a…",
    ]
    view.abandon()


def test_the_table_is_drawn_over_itself_below_lines_that_stay() -> None:
    terminal = Terminal()
    view = live(terminal)
    view.update(CALM)
    for at in range(3):
        view.log("train pid=7", f"epoch {at}")
        view.update(replace(CALM, elapsed_s=100.0 + at, left_s=None))
    screen = terminal.screen
    assert screen[:4] == [
        *("(train pid=7) epoch 0", "(train pid=7) epoch 1", "(train pid=7) epoch 2"),
        "digits  1m 42s",
    ]
    assert sum(line.startswith("digits") for line in screen) == 1
    view.abandon()


def test_colours_of_a_worker_stay_and_its_progress_bars_become_one_line() -> None:
    terminal = Terminal()
    view = live(terminal)
    view.log("train pid=7", " 10%\r 50%\r100% \x1b[31mred\x1b[0m")
    view.message("look out", "warning")
    view.update(SUMMARY)
    assert terminal.screen[:2] == ["(train pid=7) 100% red", "look out"]
    assert "\x1b[31mred" in terminal.getvalue()
    view.abandon()


def test_a_terminal_that_is_behind_shows_the_newest_lines_and_counts_the_others() -> None:
    terminal = Terminal()
    view = live(terminal)
    view.skipped("train pid=7", 40)
    for number in range(1500):
        view.log("train pid=7", f"epoch {number}")
    view.message("look out", "warning")
    view.update(SUMMARY)
    screen = terminal.screen
    assert screen[:2] == [
        "(train pid=7) ... 540 lines not shown here, see its stdout and stderr files",
        "(train pid=7) epoch 500",
    ]
    assert screen[1000:1002] == ["(train pid=7) epoch 1499", "look out"]
    view.abandon()


def test_control_signs_of_a_worker_do_not_reach_the_terminal() -> None:
    terminal = Terminal()
    view = live(terminal)
    view.log("train pid=7", "up\x1b[3A and\x07 away")
    view.log("train pid=7", "a \x08bell\x07")
    view.update(SUMMARY)
    assert terminal.screen[:2] == ["(train pid=7) up and away", "(train pid=7) a bell"]
    view.abandon()


@pytest.mark.parametrize(("columns", "lines"), [(40, 12), (80, 24), (200, 50)])
def test_the_live_table_fits_into_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    terminal = Terminal()
    view = live(terminal)
    many = replace(
        CALM,
        name="a name that is rather long for any terminal, and on it goes " * 2,
        rows=tuple(row(at, Status.RUNNING) for at in range(60)),
        params=tuple(f"group/parameter_{at}" for at in range(30)),
    )
    view.update(many)
    screen = terminal.screen
    assert len(screen) <= lines
    assert max(map(len, screen)) <= columns
    shown = sum("RUNNING" in line for line in screen)
    assert 3 <= shown <= lines // 2
    assert any(f"{60 - shown} running" in line for line in screen)
    view.abandon()


def test_what_is_said_when_the_table_is_gone_is_shown_at_once() -> None:
    terminal = Terminal()
    view = live(terminal)
    view.update(SUMMARY)
    view.finish(DONE)
    view.message("To resume: Tuner.restore(...)", "info")
    assert [line for line in terminal.screen if line][-1] == "To resume: Tuner.restore(...)"


def test_what_waits_to_be_shown_is_not_lost_where_the_run_fails() -> None:
    terminal = Terminal()
    view = live(terminal)
    view.update(SUMMARY)
    view.message("the disk is full", "error")
    view.abandon()
    assert "the disk is full" in terminal.screen


def test_drawing_takes_a_bounded_share_of_the_time() -> None:
    terminal = Terminal()
    clock, spent = Clock(), iter([0.0, 0.1, 0.1, 0.1, 0.2])
    view = TerminalView(terminal, share=0.05, clock=clock, spent=lambda: next(spent))
    view.start()
    sizes = []
    for passed_s in (0.0, 1.9, 0.2):  # a drawing of 0.1 s, then none for 2 s
        clock.now += passed_s
        view.update(replace(SUMMARY, left_s=clock.now))
        sizes.append(len(terminal.getvalue()))
    assert sizes[0] == sizes[1] < sizes[2]
    view.abandon()


def test_what_has_not_changed_is_drawn_again_only_after_a_while() -> None:
    terminal, clock = Terminal(), Clock()
    view = TerminalView(terminal, clock=clock, spent=lambda: 0.0)
    view.start()
    sizes = []
    for passed_s in (0.0, 1.0, 4.5):
        clock.now += passed_s
        view.update(CALM)
        sizes.append(len(terminal.getvalue()))
    assert sizes[0] == sizes[1] < sizes[2]
    view.abandon()


def test_in_the_end_the_table_stays_and_what_was_logged_is_not_lost() -> None:
    terminal = Terminal()
    view = live(terminal)
    view.update(CALM)
    view.log("train pid=7", "the last words")
    view.finish(DONE)
    screen = [line for line in terminal.screen if line]
    assert screen[0] == "(train pid=7) the last words"
    assert screen[1].split()[0] == "trial"
    assert screen[-2:] == [
        "best acc=0.9 train_aaaaa_00000 at iteration 3: lr=0.01",
        "24 trials in 1m 20s: 23 finished, 1 failed. Results: s3://bucket/digits",
    ]
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_an_abandoned_terminal_has_its_cursor_back() -> None:
    terminal = Terminal()
    view = live(terminal)
    view.update(CALM)
    view.abandon()
    view.abandon()
    assert terminal.getvalue().count("\x1b[?25h") == 1
    assert not any(terminal.screen)


def test_before_the_first_trial_there_is_no_table() -> None:
    terminal = Terminal()
    view = live(terminal)
    empty = Summary(name="digits", path="p", counts={}, total=None)
    view.update(empty)
    assert terminal.screen[0] == "digits  0.0s"
    view.finish(replace(empty, done=True))
    assert "0 trials in 0.0s. Results: p" in terminal.screen


# -- a notebook -------------------------------------------------------------------------------


class Notebook:
    """Replaces IPython.display: one output, and the number of its updates."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, picture: dict[str, str], raw: bool, display_id: bool) -> Notebook:
        assert raw
        self.shown.append(picture["text/html"])
        self.text = picture["text/plain"]
        return self

    def update(self, picture: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown[-1], self.text = picture["text/html"], picture["text/plain"]


def test_a_notebook_has_one_output_that_is_brought_up_to_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notebook, clock, stream = Notebook(), Clock(), io.StringIO()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    view = NotebookView(stream, clock=clock)
    view.start()
    view.update(SUMMARY)
    early = notebook.shown[0]
    clock.now += 0.5
    view.update(replace(SUMMARY, name="later"))
    assert notebook.shown == [early]
    view.finish(replace(DONE, name="<done>"))
    assert len(notebook.shown) == 1
    assert "<b>&lt;done&gt;</b>" in notebook.shown[0]
    assert '<progress value="0.400" max="1">' in early
    assert "<td>train_aaaaa_00001</td>" in early
    assert "Results: s3://bucket/digits" in notebook.shown[0]
    assert "digits" not in stream.getvalue()


def test_a_notebook_is_not_flooded_by_what_workers_print(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook, clock, stream = Notebook(), Clock(), io.StringIO()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    view = NotebookView(stream, clock=clock)
    view.skipped("train pid=7", 3)
    for number in range(500):
        view.log("train pid=7", f"<{number}>\n")
    view.message("storage is slow", "warning")
    view.update(SUMMARY)
    assert stream.getvalue() == "warning: storage is slow\n"
    assert "(train pid=7) &lt;499&gt;</pre>" in notebook.shown[0]
    assert notebook.shown[0].count("(train pid=7)") == 12
    # For viewers without HTML.
    assert notebook.text.splitlines()[0] == "digits  1m 20s, about 2m 10s left"
    assert notebook.text.splitlines()[-1] == "(train pid=7) <499>"


def test_a_notebook_shows_failures_waits_and_what_it_is_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    wait = RankWait(name="train_0", ranks=(1,), waited_s=35.0)
    nodes = NodesSummary(here=3, most=4, leaving=("c",))
    NotebookView(io.StringIO()).update(
        replace(SUMMARY, waits=(wait,), phase="opening s3://b", nodes=nodes, waiting="job 7")
    )
    shown = notebook.shown[0]
    assert ">3 of 4 nodes, c leaves</div>" in shown
    assert ">job 7</div>" in shown
    assert "rank 1 has not reported; the others have waited for 35s</div>" in shown
    assert ">opening s3://b</div>" in shown
    assert "ValueError: loss is nan</div>" in shown


def test_this_is_not_a_notebook() -> None:
    assert not in_notebook()


# -- choosing ---------------------------------------------------------------------------------

XTERM = {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("verbose", "stream", "environ", "notebook", "kind"),
    [
        (0, Terminal(), XTERM, False, SilentView),
        (None, Terminal(), XTERM, False, TerminalView),
        (1, Terminal(), XTERM, False, TerminalView),
        (1, Terminal(), XTERM, True, NotebookView),
        (3, io.StringIO(), XTERM, False, LogView),
        (1, Terminal(), {"TERM": "dumb"}, False, LogView),
        (1, Terminal(), {}, False, LogView),
        (1, Terminal(), {**XTERM, "CI": "true"}, False, LogView),
    ],
)
def test_the_view_suits_the_stream(
    verbose: int | None, stream: io.StringIO, environ: dict[str, str], notebook: bool, kind: type
) -> None:
    chosen = choose_view(verbose, stream, environ, notebook)
    assert isinstance(chosen, UnfailingView)
    assert type(chosen.view) is kind


def test_where_a_debugger_may_speak_to_its_user_lines_are_written() -> None:
    chosen = choose_view(1, Terminal(), XTERM, notebook=False, inline=True)
    assert isinstance(chosen, UnfailingView)
    assert type(chosen.view) is LogView


def test_a_terminal_that_cannot_show_the_signs_gets_lines() -> None:
    class Latin(Terminal):
        encoding = "latin-1"

    chosen = choose_view(1, Latin(), XTERM, notebook=False)
    assert isinstance(chosen, UnfailingView)
    assert type(chosen.view) is LogView


def test_rich_is_imported_for_a_live_view_only() -> None:
    code = (
        "import io, sys, holdfast.experiment.progress.views as p\n"
        "p.choose_view(1, io.StringIO(), {}, False).start()\n"
        "assert 'rich' not in sys.modules, 'rich was imported'\n"
        "assert 'IPython' not in sys.modules, 'IPython was imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- faults -----------------------------------------------------------------------------------


class Broken(SilentView):
    """Raises in each method named in `where`."""

    def __init__(self, where: str) -> None:
        super().__init__(io.StringIO())
        self.where = where
        self.abandoned = False

    def _raise(self, where: str) -> None:
        if where == self.where:
            raise OSError("the terminal is gone")

    def start(self) -> None:
        self._raise("start")

    def update(self, summary: Summary) -> None:
        self._raise("update")

    def log(self, prefix: str, text: str) -> None:
        self._raise("log")

    def message(self, text: str, level: str) -> None:
        self._raise("message")

    def finish(self, summary: Summary) -> None:
        self._raise("finish")

    def abandon(self) -> None:
        self.abandoned = True


def use(view: ProgressView) -> None:
    view.start()
    view.update(SUMMARY)
    view.log("p", "text")
    view.skipped("p", 2)
    view.message("text", "info")
    view.update(SUMMARY)
    view.finish(SUMMARY)
    view.abandon()


@pytest.mark.parametrize("where", ["start", "update", "log", "message", "finish"])
def test_a_view_that_raises_is_reported_once_and_ends_nothing(where: str) -> None:
    stream, broken = io.StringIO(), Broken(where)
    use(UnfailingView(broken, stream))
    lines = plain_lines(stream)
    told = [line for line in lines if "the progress display failed" in line]
    assert told == [
        "the progress display failed; the run continues: OSError('the terminal is gone')"
    ]
    assert any("test_views.py" in line for line in lines)
    assert broken.abandoned


@pytest.mark.parametrize("where", ["update", "finish"])
def test_when_the_table_cannot_be_drawn_lines_take_its_place(where: str) -> None:
    class BrokenTable(TerminalView):
        def update(self, summary: Summary) -> None:
            super().update(summary)
            if where == "update":
                raise ValueError("no such colour")

        def finish(self, summary: Summary) -> None:
            raise ValueError("no such colour")

    terminal = Terminal()
    view = UnfailingView(BrokenTable(terminal, clock=Clock()), terminal)
    view.start()
    view.update(CALM)
    view.finish(DONE)
    screen = [line for line in terminal.screen if line]
    assert screen[0].startswith("error: the progress display failed")
    assert screen[-1].endswith("Results: s3://bucket/digits")
    assert not any(line.startswith("digits  ") for line in screen)


def test_a_stream_that_was_closed_ends_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    use(UnfailingView(LogView(stream), stream))


def test_ctrl_c_while_drawing_is_not_swallowed() -> None:
    class Interrupted(SilentView):
        def update(self, summary: Summary) -> None:
            raise KeyboardInterrupt

    view = UnfailingView(Interrupted(io.StringIO()), io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        view.update(SUMMARY)


# -- lines for results ------------------------------------------------------------------------


def result_lines(verbose: int) -> list[str]:
    """The messages about a trial with three reports in half a second, and one a second later."""
    told: list[str] = []
    clock = Clock()
    registry = Views(
        Surroundings(
            trainable_name="train",
            experiment_path="p",
            local_experiment_path="l",
            config_of=lambda spec: spec.config,
            row_of=lambda trial: {
                **(trial.row or {}),
                "training_iteration": trial.iteration,
                "time_total_s": trial.time_total_s,
            },
            checkpoint_of=lambda spec, record: Checkpoint("/c"),
        )
    )
    spec = TrialSpec(
        trial_id="aaaaa_00000",
        index=0,
        name="train_aaaaa_00000",
        dirname="d",
        config={"lr": 0.5},
        tag="0_lr=0.5",
    )
    lines = ResultLines(verbose, lambda text, level: told.append(f"{level} {text}"), clock=clock)
    for iteration, passed_s in ((1, 0.0), (2, 0.25), (3, 0.25), (4, 1.0)):
        clock.now += passed_s
        row = {"acc": 0.25 * iteration, "note": "x", "net": {"norm": 2}, "pid": 7, "config": {}}
        view = registry.show(
            Trial(spec=spec, row=row, iteration=iteration, time_total_s=80.0 + iteration)
        )
        about: dict[str, Any] = {"iteration": 9, "trials": registry.trials, "trial": view}
        if iteration == 1:
            lines.on_trial_start(**about)
        lines.on_trial_result(**about, result=view.last_result)
    lines.on_trial_complete(**about)
    return told


START = "info train_aaaaa_00000 started lr=0.5"
END = "info train_aaaaa_00000 finished at iteration 4 after 1m 24s acc=1"


def test_verbose_2_tells_of_starts_and_ends_and_of_results_in_brief() -> None:
    assert result_lines(2) == [
        START,
        "info train_aaaaa_00000 iteration 1 after 1m 21s acc=0.25",
        "info train_aaaaa_00000 iteration 4 after 1m 24s acc=1",
        END,
    ]


def test_verbose_3_tells_all_of_each_result() -> None:
    start, *results, end = result_lines(3)
    assert (start, end) == (START, END)
    assert len(results) == 4
    assert results[2].splitlines() == [
        "info train_aaaaa_00000 iteration 3 after 1m 23s",
        *("  acc: 0.75", "  net/norm: 2", "  note: x", "  pid: 7"),
    ]
