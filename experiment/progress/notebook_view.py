"""A run as HTML below the cell of a notebook."""

from __future__ import annotations

import importlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, TextIO

from holdfast.experiment.callbacks.thread import Level
from holdfast.experiment.progress.log_view import LogView
from holdfast.experiment.progress.summary import Summary
from holdfast.experiment.progress.trial_table import table_of
from holdfast.experiment.progress.wording import (
    best_text,
    closing_text,
    counts_text,
    failure_lines,
    hidden_text,
    node_lines,
    storage_text,
    time_text,
    wait_lines,
)
from holdfast.names import printable
from holdfast.text.tables import (
    AMBER,
    RED,
    html_heading,
    html_line,
    html_table,
    text_table,
)
from holdfast.text.values import printed, skipped_text

_EVERY_S = 1.0
_SHOWN_LINES = 12
_BOX = "overflow:auto;margin:0;font-size:90%"


class NotebookView:
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

    def start(self) -> None:
        """The output appears with the first update."""

    def update(self, summary: Summary) -> None:
        now = self._clock()
        if now >= self._next_at:
            self._next_at = now + _EVERY_S
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

    def abandon(self) -> None:
        """Nothing to undo: the output stays."""

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
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


def notebook_display() -> Any:
    """The module `IPython.display`, which exists in every notebook."""
    return importlib.import_module("IPython.display")
