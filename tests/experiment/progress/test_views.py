"""Which view suits a stream, and what happens if a view fails."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from holdfast.experiment.progress.summary import ProgressView, Summary
from holdfast.experiment.progress.terminal_view import TerminalView
from holdfast.experiment.progress.views import (
    LogView,
    NotebookView,
    SilentView,
    UnfailingView,
    choose_view,
)
from tests.experiment.progress.screens import (
    CALM,
    DONE,
    SUMMARY,
    Clock,
    Terminal,
    plain_lines,
)

pytestmark = pytest.mark.usefixtures("terminal_size")


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
