"""A run as HTML below the cell of a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any, TextIO

from holdfast.experiment.plain_view import PlainView
from holdfast.experiment.reporters import html_table, notebook_display
from holdfast.experiment.summary import Summary
from holdfast.experiment.trial_table import table_of
from holdfast.experiment.wording import (
    best_text,
    closing_text,
    counts_text,
    failure_lines,
    hidden_text,
    storage_text,
    time_text,
)


class NotebookView:
    """One output below the cell, brought up to date at most once in `every_s`."""

    def __init__(
        self,
        stream: TextIO,
        *,
        every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plain = PlainView(stream)
        self._every_s = every_s
        self._clock = clock
        self._next_at = 0.0
        self._handle: Any = None

    def start(self) -> None:
        """The output appears with the first update."""

    def update(self, summary: Summary) -> None:
        now = self._clock()
        if now >= self._next_at:
            self._next_at = now + self._every_s
            self._show(summary)

    def log(self, prefix: str, text: str) -> None:
        self._plain.log(prefix, text)

    def skipped(self, prefix: str, count: int) -> None:
        self._plain.skipped(prefix, count)

    def message(self, text: str, level: str) -> None:
        self._plain.message(text, level)

    def finish(self, summary: Summary) -> None:
        self._show(summary)

    def abandon(self) -> None:
        """What was shown stays."""

    def _show(self, summary: Summary) -> None:
        notebook = notebook_display()
        picture = notebook.HTML(html_of(summary))
        if self._handle is None:
            self._handle = notebook.display(picture, display_id=True)
        else:
            self._handle.update(picture)


def html_of(summary: Summary) -> str:
    """The run as a fragment of HTML."""
    bar = f'<progress value="{summary.finished}" max="{summary.total}"></progress> '
    headers, cells, _ = table_of(summary)
    notes = [
        hidden_text(summary.hidden),
        f"best {best_text(summary)}" if summary.best else "",
        storage_text(summary),
        *failure_lines(summary),
    ]
    if summary.done:
        notes.append(f"{closing_text(summary)}. Results: {summary.path}")
    head = f"<b>{escape(summary.name)}</b> {escape(time_text(summary))}"
    progress = f"{bar if summary.total else ''}{escape(counts_text(summary))}"
    lines = "".join(f"<div>{escape(note)}</div>" for note in notes if note)
    return f"<div>{head}</div>\n<div>{progress}</div>\n{html_table(headers, cells)}\n{lines}"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"
