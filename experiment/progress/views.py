"""The views of a run while `fit()` waits: a live table, log lines, a notebook, or nothing.

The thread that called `fit()` passes a view a Summary a few times a second.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from holdfast.experiment.callbacks.thread import Level
from holdfast.experiment.progress.summary import ProgressView, Summary
from holdfast.experiment.progress.terminal_view import TerminalView
from holdfast.experiment.progress.trial_table import table_of
from holdfast.experiment.progress.wording import (
    best_text,
    closing_lines,
    closing_text,
    counts_text,
    failure_lines,
    failure_text,
    hidden_text,
    node_lines,
    pointer,
    storage_text,
    time_text,
    wait_lines,
)
from holdfast.forked import children_end_here
from holdfast.names import printable
from holdfast.text.tables import (
    AMBER,
    RED,
    html_heading,
    html_line,
    html_table,
    text_table,
)
from holdfast.text.trials import unread_text
from holdfast.text.values import duration, printed, skipped_text, values_text

# Long runs log less often than short ones: after 50 minutes, once a minute.
_PART_OF_ELAPSED = 0.02
_EVERY_S, _MOST_S = 10.0, 120.0
# If nothing changes, a line still shows that the run is alive, and what it waits for.
_QUIET_S = 300.0
_WORDS = {"loss": "warning"}
_LONG_PHASE_S = 3.0


class LogView(ProgressView):
    """Lines for a log file: events at once, and the state of the run from time to time.

    Trials that start and end are logged at most every ten seconds. If only iterations advance, the
    time between two lines grows to two minutes; if nothing changes, to five.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._has_header = False
        self._written_at: float | None = None
        self._written: tuple[object, object] = (None, None)
        self._written_waiting = ""
        self._phase, self._phase_since = "", 0.0
        self._written_failures: set[tuple[str, int]] = set()

    def update(self, summary: Summary) -> None:
        if not self._has_header:
            self._has_header = True
            resumed = "resumed, " if summary.is_resumed else ""
            _write(self._stream, f"{summary.name}: {resumed}results in {summary.path}")
        if (
            self._written_at is None
            and summary.is_resumed
            and summary.phase
            and not summary.waiting
        ):
            return  # the counts are those of before the restore
        self._write_failures(summary)
        self._write_phase(summary)
        now = self._clock()
        news, steps = _state(summary), [(row.trial_id, row.iteration) for row in summary.rows]
        waited_s = None if self._written_at is None else now - self._written_at
        if waited_s is None or waited_s >= self._pause_s(summary, news, steps):
            self._written_at, self._written = now, (news, steps)
            self._written_waiting = summary.waiting
            _write(self._stream, _line(summary))

    def _pause_s(self, summary: Summary, news: object, steps: object) -> float:
        """Seconds between the last line and the next one."""
        if summary.waiting != self._written_waiting and not summary.rows:
            return _LONG_PHASE_S
        if news != self._written[0]:
            return _EVERY_S
        if steps != self._written[1]:
            return max(_EVERY_S, min(_MOST_S, _PART_OF_ELAPSED * summary.elapsed_s))
        return _QUIET_S

    def _write_failures(self, summary: Summary) -> None:
        """Log final failures; a message reports each retry."""
        for failure in summary.failures:
            attempt = failure.trial_id, failure.attempt
            if failure.final and not failure.is_earlier and attempt not in self._written_failures:
                self._written_failures.add(attempt)
                look = pointer(failure.error_file, failure.other_file, node=failure.node)
                _write(self._stream, f"{failure_text(failure)}, {look}")

    def _write_phase(self, summary: Summary) -> None:
        """After the trials, log phases that last: short ones would appear in every run."""
        now = self._clock()
        if not summary.done or summary.phase != self._phase:
            self._phase, self._phase_since = summary.phase if summary.done else "", now
        elif self._phase and now - self._phase_since >= _LONG_PHASE_S:
            self._phase_since = math.inf  # logged
            storage = f"; {storage_text(summary)}" if storage_text(summary) else ""
            _write(self._stream, f"[{duration(summary.elapsed_s)}] {summary.phase}{storage}")

    def log(self, prefix: str, text: str) -> None:
        for line in printed(text):
            _print(self._stream, f"({printable(prefix)}) {line}")

    def skipped(self, prefix: str, count: int) -> None:
        _write(self._stream, f"({prefix}) {skipped_text(count)}")

    def message(self, text: str, level: Level) -> None:
        _write(self._stream, text if level == "info" else f"{_WORDS.get(level, level)}: {text}")

    def finish(self, summary: Summary) -> None:
        if summary.rows:
            _write(self._stream, text_table(*table_of(summary)))
        for line in filter(None, closing_lines(summary)):
            _write(self._stream, line)


def _state(summary: Summary) -> object:
    """A change of these values is logged soon."""
    late = summary.storage is not None and summary.storage.is_late
    best = summary.best.trial_id if summary.best else None
    waits = len(list(wait_lines(summary)))
    return summary.counts, best, late, summary.ending, waits, summary.nodes, summary.waiting


def _line(summary: Summary) -> str:
    """`[1m 20s, about 2m 10s left] 40%, 2/6 done, ...; best ...`."""
    share = f"{int(100 * summary.share)}%, " if summary.share else ""
    parts = [
        f"{share}{counts_text(summary)}",
        f"best {best_text(summary)}" if summary.best else _metrics(summary),
        *wait_lines(summary),
        summary.scheduler,
        summary.outlook,
        storage_text(summary),
        *node_lines(summary),
        f"stopping: {summary.ending}" if summary.ending and not summary.phase else "",
    ]
    return f"[{time_text(summary)}] {'; '.join(filter(None, parts))}"


def _metrics(summary: Summary) -> str:
    """The last metrics, if there is only one trial."""
    if summary.total != 1 or not summary.rows:
        return ""
    return values_text(summary.rows[0].metrics)


class SilentView(ProgressView):
    """Shows only errors, and outputs that are lost or incomplete."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def message(self, text: str, level: Level) -> None:
        if level in ("error", "loss"):
            _write(self._stream, text)

    def finish(self, summary: Summary) -> None:
        for line in filter(None, [*failure_lines(summary), unread_text(summary.unread)]):
            _write(self._stream, line)


def _write(stream: TextIO, text: str) -> None:
    """Print holdfast's own text; it may contain names from anywhere."""
    _print(stream, printable(text, keep="\n"))


def _print(stream: TextIO, text: str) -> None:
    try:
        print(text, file=stream, flush=True)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        print(text.encode(encoding, "replace").decode(encoding), file=stream, flush=True)


_HTML_EVERY_S = 1.0
_SHOWN_LINES = 12
_BOX = "overflow:auto;margin:0;font-size:90%"


class NotebookView(ProgressView):
    """One output below the cell, updated at most once a second.

    The newest lines of the workers are part of it: as output of the cell they would push the table
    away. Messages are output of the cell, because each should be read.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._plain = LogView(stream)
        self._clock = clock
        self._next_at = 0.0
        self._lines: deque[str] = deque(maxlen=_SHOWN_LINES)
        self._handle: Any = None

    def update(self, summary: Summary) -> None:
        now = self._clock()
        if now >= self._next_at:
            self._next_at = now + _HTML_EVERY_S
            self._show(summary)

    def log(self, prefix: str, text: str) -> None:
        self._lines.extend(
            f"({printable(prefix)}) {line}" for line in printed(text)[-_SHOWN_LINES:]
        )

    def skipped(self, prefix: str, count: int) -> None:
        self._lines.append(f"({prefix}) {skipped_text(count)}")

    def message(self, text: str, level: Level) -> None:
        self._plain.message(text, level)

    def finish(self, summary: Summary) -> None:
        self._show(summary)

    def _show(self, summary: Summary) -> None:
        notebook = notebook_display()
        lines = tuple(self._lines)
        # For viewers without HTML, such as a converted notebook or a diff tool.
        picture = {"text/html": html_of(summary, lines), "text/plain": text_of(summary, lines)}
        if self._handle is None:
            self._handle = notebook.display(picture, raw=True, display_id=True)
        else:
            self._handle.update(picture, raw=True)


def html_of(summary: Summary, lines: Sequence[str] = ()) -> str:
    """The run as an HTML fragment; `lines` are the newest lines of its workers."""
    from html import escape

    bar = f'<progress value="{summary.share or 0:.3f}" max="1"></progress> '
    has_bar = summary.share is not None and (summary.total != 1 or summary.share > 0)
    parts = [
        html_heading(summary.name, time_text(summary)),
        f"<div>{bar if has_bar else ''}{escape(counts_text(summary))}</div>",
        html_table(*table_of(summary)) if summary.rows else "",
        *(html_line(text, style) for text, style in _notes(summary)),
        f'<pre style="{_BOX}">{escape(chr(10).join(lines))}</pre>' if lines else "",
    ]
    return "\n".join(filter(None, parts))


def text_of(summary: Summary, lines: Sequence[str] = ()) -> str:
    """The run as plain text."""
    parts = [
        f"{printable(summary.name)}  {time_text(summary)}",
        counts_text(summary),
        text_table(*table_of(summary)) if summary.rows else "",
        *(text for text, _ in _notes(summary)),
        *lines,
    ]
    return "\n".join(filter(None, parts))


def _notes(summary: Summary) -> Iterator[tuple[str, str]]:
    """The lines below the table, each with its style."""
    is_late = summary.storage is not None and summary.storage.is_late
    notes = [
        (hidden_text(summary), ""),
        (f"best {best_text(summary)}" if summary.best else "", ""),
        *((line, RED) for line in failure_lines(summary)),
        *((line, AMBER) for line in wait_lines(summary)),
        (storage_text(summary), AMBER if is_late else ""),
        *((line, "") for line in (() if summary.done else node_lines(summary))),
        (f"stopping: {summary.ending}" if summary.ending and not summary.done else "", AMBER),
        (summary.phase if not summary.done else "", ""),
        (f"{closing_text(summary)}. Results: {summary.path}" if summary.done else "", ""),
    ]
    return ((printable(text, keep="\n"), style) for text, style in notes if text)


def in_notebook() -> bool:
    """True if this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


def notebook_display() -> Any:
    """The module `IPython.display`, which exists in every notebook."""
    return importlib.import_module("IPython.display")


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


class UnfailingView(ProgressView):
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
