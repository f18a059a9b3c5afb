"""What is seen of a run while `fit()` waits: a live table, lines of a log, a notebook, or nothing.

A view is driven by the thread that called `fit()`, a few times a second, with a Summary.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Mapping
from typing import Protocol, TextIO

from holdfast.experiment.progress.log_view import LogView, SilentView
from holdfast.experiment.progress.notebook_view import NotebookView
from holdfast.experiment.progress.summary import Summary
from holdfast.experiment.progress.terminal_view import TerminalView
from holdfast.forked import children_end_here


class ProgressView(Protocol):
    """Shows a run to a person. All methods are called from one thread."""

    def start(self) -> None:
        """The run begins."""

    def update(self, summary: Summary) -> None:
        """This is how it stands; called about four times a second."""

    def log(self, prefix: str, text: str) -> None:
        """A worker (`prefix`: its trial and process) has printed `text`, one or more lines."""

    def skipped(self, prefix: str, count: int) -> None:
        """So many lines of a worker came too fast to be given to `log`, before what is given
        next."""

    def message(self, text: str, level: str) -> None:
        """Something the user should know; `level` is "info", "warning", "loss" or "error".

        A loss is a warning that outputs are lost or incomplete: it is shown at `verbose=0`, too.
        """

    def finish(self, summary: Summary) -> None:
        """The run has ended: show what came of it."""

    def abandon(self) -> None:
        """Leave the terminal as it was found, at once and without a word."""


def choose_view(
    verbose: int | None,
    stream: TextIO,
    environ: Mapping[str, str],
    notebook: bool,
    *,
    inline: bool = False,
) -> ProgressView:
    """The view that suits `stream`: none for `verbose=0`, live for a terminal, else lines.

    Continuous integration and dumb terminals count as log files, and so does a terminal in which
    a debugger may speak to its user, because trials run in this process (`inline`).
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
    if not stream.isatty() or environ.get("CI") or environ.get("TERM", "dumb") == "dumb":
        return False
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")


class UnfailingView:
    """Passes everything on; a view that raises is replaced by a simpler one, and the run goes on.

    Give it a ReporterView, too: a user's reporter may raise anything.
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

    def message(self, text: str, level: str) -> None:
        self._try(lambda view: view.message(text, level))

    def finish(self, summary: Summary) -> None:
        if not self._try(lambda view: view.finish(summary)):
            self._try(lambda view: view.finish(summary))

    def abandon(self) -> None:
        self._try(lambda view: view.abandon())

    def _try(self, show: Callable[[ProgressView], None]) -> bool:
        try:
            with children_end_here():  # a reporter is the user's
                show(self.view)
        except Exception as error:  # told below, where the stream still takes anything
            self._replace(f"the progress display failed, the run goes on: {error!r}", error)
            return False
        return True

    def _replace(self, text: str, error: Exception) -> None:
        failed = self.view
        with contextlib.suppress(Exception):  # it has failed already, and the user is told so
            failed.abandon()
        simple = isinstance(failed, (LogView, SilentView))
        self.view = SilentView(self._stream) if simple else LogView(self._stream)
        with contextlib.suppress(Exception):  # a stream that is gone takes no message either
            self.view.message("\n".join([text, *traceback.format_exception(error)]), "error")
