"""The views of a run while `fit()` waits: a live table, log lines, a notebook, or nothing.

The thread that called `fit()` passes a view a Summary a few times a second.
"""

from __future__ import annotations

import contextlib
import io
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Protocol, TextIO

from holdfast.experiment.callbacks.thread import Level
from holdfast.experiment.progress.log_view import LogView, SilentView
from holdfast.experiment.progress.notebook_view import NotebookView
from holdfast.experiment.progress.summary import Summary
from holdfast.experiment.progress.terminal_view import TerminalView
from holdfast.forked import children_end_here


class ProgressView(Protocol):
    """Shows a run to a person. All methods are called from one thread."""

    def start(self) -> None:
        """Called when the run begins."""

    def update(self, summary: Summary) -> None:
        """Called with the state of the run: up to four times a second, every ten seconds
        if nothing happens."""

    def log(self, prefix: str, text: str) -> None:
        """Called when a worker has printed `text`, one or more lines; `prefix` is its trial and
        process."""

    def skipped(self, prefix: str, count: int) -> None:
        """Called when `count` lines of a worker were dropped before the next call of `log`."""

    def message(self, text: str, level: Level) -> None:
        """Called with a message for the user; `level` is "info", "warning", "loss" or "error".

        A loss is a warning that outputs are lost or incomplete; it is shown at `verbose=0` as
        well.
        """

    def finish(self, summary: Summary) -> None:
        """Called when the run has ended, to show the result."""

    def abandon(self) -> None:
        """Restore the terminal at once, without printing anything."""


class _Nowhere(io.StringIO):
    """In place of a stream that the process does not have."""

    def write(self, text: str) -> int:
        return len(text)


def error_stream() -> TextIO:
    """`sys.stderr`, which is None if the launcher has closed it."""
    return sys.stderr or _Nowhere()


def choose_view(
    verbose: int | None,
    stream: TextIO,
    environ: Mapping[str, str],
    notebook: bool,
    *,
    inline: bool = False,
) -> ProgressView:
    """The view that suits `stream`: none for `verbose=0`, live for a terminal, lines otherwise.

    Continuous integration and dumb terminals count as log files. So does a terminal in which a
    debugger may be used, because trials run in this process (`inline`).
    """
    if verbose == 0:
        view: ProgressView = SilentView(stream)
    elif notebook:
        view = NotebookView(stream)
    elif not inline and _is_terminal(stream, environ):
        view = TerminalView(stream)
    else:
        view = LogView(stream)
    return UnfailingView(view, stream)


def _is_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    try:
        is_terminal = stream.isatty()
    except Exception:  # an object of the user, perhaps closed
        return False
    if not is_terminal or environ.get("CI") or environ.get("TERM", "dumb") == "dumb":
        return False
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")


class UnfailingView:
    """Passes all calls on; if a view raises, a simpler one replaces it and the run continues.

    Wrap a ReporterView in it as well: a user's reporter may raise anything.
    """

    def __init__(self, view: ProgressView, stream: TextIO) -> None:
        self.view = view
        self._stream = stream

    def start(self) -> None:
        self._try(lambda view: view.start())

    def update(self, summary: Summary) -> None:
        self._try(lambda view: view.update(summary))

    def log(self, prefix: str, text: str) -> None:
        self._try(lambda view: view.log(prefix, text))

    def skipped(self, prefix: str, count: int) -> None:
        self._try(lambda view: view.skipped(prefix, count))

    def message(self, text: str, level: Level) -> None:
        self._try(lambda view: view.message(text, level))

    def finish(self, summary: Summary) -> None:
        if not self._try(lambda view: view.finish(summary)):
            self._try(lambda view: view.finish(summary))

    def abandon(self) -> None:
        self._try(lambda view: view.abandon())

    def _try(self, show: Callable[[ProgressView], None]) -> bool:
        try:
            with children_end_here():  # a reporter is user code
                show(self.view)
        except Exception as error:  # reported below, if the stream still works
            self._replace(f"the progress display failed; the run continues: {error!r}", error)
            return False
        return True

    def _replace(self, text: str, error: Exception) -> None:
        failed = self.view
        with contextlib.suppress(Exception):  # it has already failed, and the user sees that
            failed.abandon()
        simple = isinstance(failed, (LogView, SilentView))
        self.view = SilentView(self._stream) if simple else LogView(self._stream)
        with contextlib.suppress(Exception):  # a closed stream takes no message
            self.view.message("\n".join([text, *traceback.format_exception(error)]), "error")
