"""The output of a run in a terminal: a table that is drawn over itself, below lines that stay."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import cast

import pytest

from holdfast.experiment.control.output import RunOutput
from holdfast.experiment.control.run import RunResult
from holdfast.experiment.control.watch import RunHandle, watch
from holdfast.experiment.progress.summary import RunFacts, Summary
from holdfast.experiment.progress.terminal_view import LogBuffer, TerminalView
from holdfast.experiment.progress.views import LogView
from holdfast.scheduler.machine import Machine
from holdfast.trial.trial import Status
from tests.experiment.progress.screens import CALM, DONE, SUMMARY, Clock, Terminal, row


def test_the_oldest_make_room_and_are_counted_for_each_trial() -> None:
    log_buffer = LogBuffer(2)
    for prefix in ("a", "b", "a", "a", "b"):
        log_buffer.put(prefix, "x")
    log_buffer.skip("c", 5)
    taken = log_buffer.take()
    assert list(taken.lines) == [("a", "x"), ("b", "x")]
    assert taken.skipped == {"a": 2, "b": 1, "c": 5}
    assert not log_buffer.take().skipped


class Busy:
    """A run that ends while it is watched, with more lines than the buffer holds."""

    inline = None
    stopped_by = ""
    machine = Machine()
    result = RunResult()

    def __init__(self) -> None:
        self.output = RunOutput("")
        self.output.lines = LogBuffer(2)
        for number in range(5):
            self.output.show_line("train_7", 9, "stdout", f"line {number}")

    def start(self) -> None: ...

    def join(self) -> None: ...

    def wait_for_news(self, seen: float, rest_s: float, quiet_s: float) -> bool:
        return True

    def wait(self, timeout_s: float | None) -> bool:
        return True

    def summary(self, facts: RunFacts) -> Summary:
        return Summary(name=facts.name, path=facts.path, counts={}, total=0)


def test_a_watcher_that_catches_up_is_shown_what_it_does_not_see() -> None:
    stream = io.StringIO()
    facts = RunFacts(name="exp", path="p", local_path="p")
    watch(cast(RunHandle, Busy()), LogView(stream), facts)
    assert stream.getvalue().splitlines()[:3] == [
        "(train_7 pid=9) ... 3 lines not shown here, see its stdout and stderr files",
        "(train_7 pid=9) line 3",
        "(train_7 pid=9) line 4",
    ]


pytestmark = pytest.mark.usefixtures("terminal_size")


def live(terminal: Terminal) -> TerminalView:
    view = TerminalView(terminal, clock=Clock(), spent=lambda: 0.0)
    view.start()
    return view


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
    assert screen[3].split()[:2] == ["aaaaa_00001", "running"]
    assert screen[4].split()[:2] == ["aaaaa_00000", "finished"]
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
    shown = sum(" running " in line for line in screen[2:])
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
