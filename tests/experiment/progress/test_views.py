"""Which view suits a stream, and what happens if a view fails."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.experiment.progress.summary import NodesSummary, ProgressView, RankWait, Summary
from holdfast.experiment.progress.terminal_view import TerminalView
from holdfast.experiment.progress.views import (
    LogView,
    NotebookView,
    SilentView,
    UnfailingView,
    choose_view,
    in_notebook,
)
from holdfast.experiment.progress.wording import first_failures, wait_lines
from holdfast.trial.trial import Status
from tests.experiment.progress.screens import (
    CALM,
    DONE,
    FAILURE,
    SUMMARY,
    Clock,
    Terminal,
    plain_lines,
    row,
)

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


pytestmark = pytest.mark.usefixtures("terminal_size")


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


pytestmark = pytest.mark.usefixtures("terminal_size")


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
