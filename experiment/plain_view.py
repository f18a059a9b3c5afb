"""A run as lines of text: for log files, or nothing but what went wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from holdfast.experiment.reporters import text_table
from holdfast.experiment.summary import Summary
from holdfast.experiment.trial_table import table_of
from holdfast.experiment.wording import (
    best_text,
    closing_lines,
    counts_text,
    failure_lines,
    failure_text,
    printed,
    skipped_text,
    storage_text,
    time_text,
)


class PlainView:
    """Lines for a log file: how it stands, at most every `every_s`, where something changed."""

    def __init__(
        self,
        stream: TextIO,
        *,
        every_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._every_s = every_s
        self._clock = clock
        self._told_at: float | None = None
        self._told: object = None
        self._told_failures: set[tuple[str, int, bool]] = set()

    def start(self) -> None:
        """The first update tells the name."""

    def update(self, summary: Summary) -> None:
        if self._told_at is None:
            _write(self._stream, f"{summary.name}: results in {summary.path}")
        self._tell_failures(summary)
        now = self._clock()
        news = (summary.counts, summary.best, [(r.trial_id, r.iteration) for r in summary.rows])
        if news == self._told or (
            self._told_at is not None and now - self._told_at < self._every_s
        ):
            return
        self._told_at, self._told = now, news
        best = f"; best {best_text(summary)}" if summary.best else ""
        storage = f"; {storage_text(summary)}" if storage_text(summary) else ""
        _write(self._stream, f"[{time_text(summary)}] {counts_text(summary)}{best}{storage}")

    def _tell_failures(self, summary: Summary) -> None:
        for failure in summary.failures:
            key = (failure.trial_id, failure.retries, failure.final)
            if key not in self._told_failures:
                self._told_failures.add(key)
                _write(self._stream, f"{failure_text(failure)}, see {failure.error_file}")

    def log(self, prefix: str, text: str) -> None:
        for line in printed(text):
            _write(self._stream, f"({prefix}) {line}")

    def skipped(self, prefix: str, count: int) -> None:
        _write(self._stream, f"({prefix}) {skipped_text(count)}")

    def message(self, text: str, level: str) -> None:
        _write(self._stream, text if level == "info" else f"{level}: {text}")

    def finish(self, summary: Summary) -> None:
        if summary.rows:
            headers, cells, _ = table_of(summary)
            _write(self._stream, text_table(headers, cells))
        for line in filter(None, closing_lines(summary)):
            _write(self._stream, line)

    def abandon(self) -> None:
        """Nothing was changed."""


class SilentView:
    """Shows errors and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self) -> None:
        """Nothing to show."""

    def update(self, summary: Summary) -> None:
        """Nothing to show."""

    def log(self, prefix: str, text: str) -> None:
        """Nothing to show."""

    def skipped(self, prefix: str, count: int) -> None:
        """Nothing to show."""

    def message(self, text: str, level: str) -> None:
        if level == "error":
            _write(self._stream, text)

    def finish(self, summary: Summary) -> None:
        for line in failure_lines(summary):
            _write(self._stream, line)

    def abandon(self) -> None:
        """Nothing was changed."""


def _write(stream: TextIO, text: str) -> None:
    try:
        print(text, file=stream, flush=True)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        print(text.encode(encoding, "replace").decode(encoding), file=stream, flush=True)
