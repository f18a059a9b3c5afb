"""A run as lines of text: for log files, or only what went wrong; a buffer of trials' lines."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.thread import Level
from holdfast.experiment.progress.summary import Summary
from holdfast.experiment.progress.trial_table import table_of
from holdfast.experiment.progress.wording import (
    best_text,
    closing_lines,
    counts_text,
    failure_lines,
    failure_text,
    node_lines,
    pointer,
    storage_text,
    time_text,
    wait_lines,
)
from holdfast.names import printable
from holdfast.text.tables import text_table
from holdfast.text.trials import unread_text
from holdfast.text.values import duration, printed, skipped_text, values_text


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferedLines:
    """`lines` with their prefixes, oldest first; `skipped` counts the earlier lines dropped, by
    prefix."""

    skipped: Mapping[str, int]
    lines: Sequence[tuple[str, str]]


class LogBuffer:
    """Holds the newest `most` lines until they are taken; older ones are only counted.

    One thread may fill it while another empties it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._lines: deque[tuple[str, str]] = deque()
        self._skipped: Counter[str] = Counter()

    def put(self, prefix: str, line: str) -> None:
        with self._lock:
            if len(self._lines) == self._most:
                self._skipped[self._lines.popleft()[0]] += 1
            self._lines.append((prefix, line))

    def skip(self, prefix: str, count: int) -> None:
        """Count lines that were dropped on their way here."""
        with self._lock:
            self._skipped[prefix] += count

    @property
    def is_empty(self) -> bool:
        return not self._lines and not self._skipped

    def take(self) -> BufferedLines:
        """Take all lines since the last call."""
        with self._lock:
            taken = BufferedLines(skipped=self._skipped, lines=self._lines)
            self._skipped, self._lines = Counter(), deque()
        return taken


# Long runs log less often than short ones: after 50 minutes, once a minute.
_PART_OF_ELAPSED = 0.02
_EVERY_S, _MOST_S = 10.0, 120.0
# If nothing changes, a line still shows that the run is alive, and what it waits for.
_QUIET_S = 300.0
_WORDS = {"loss": "warning"}
_LONG_PHASE_S = 3.0


class LogView:
    """Lines for a log file: events at once, and the state of the run from time to time.

    Trials that start and end are logged at most every ten seconds. If only iterations advance, the
    time between two lines grows to two minutes; if nothing changes, to five.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._has_header = False
        self._told_at: float | None = None
        self._told: tuple[object, object] = (None, None)
        self._told_waiting = ""
        self._phase, self._phase_since = "", 0.0
        self._told_failures: set[tuple[str, int]] = set()

    def start(self) -> None:
        """The first update prints the name."""

    def update(self, summary: Summary) -> None:
        if not self._has_header:
            self._has_header = True
            resumed = "resumed, " if summary.is_resumed else ""
            _write(self._stream, f"{summary.name}: {resumed}results in {summary.path}")
        if self._told_at is None and summary.is_resumed and summary.phase and not summary.waiting:
            return  # the counts are those of before the restore
        self._tell_failures(summary)
        self._tell_phase(summary)
        now = self._clock()
        news, steps = _state(summary), [(row.trial_id, row.iteration) for row in summary.rows]
        waited_s = None if self._told_at is None else now - self._told_at
        if waited_s is None or waited_s >= self._pause_s(summary, news, steps):
            self._told_at, self._told = now, (news, steps)
            self._told_waiting = summary.waiting
            _write(self._stream, _line(summary))

    def _pause_s(self, summary: Summary, news: object, steps: object) -> float:
        """Seconds between the last line and the next one."""
        if summary.waiting != self._told_waiting and not summary.rows:
            return _LONG_PHASE_S
        if news != self._told[0]:
            return _EVERY_S
        if steps != self._told[1]:
            return max(_EVERY_S, min(_MOST_S, _PART_OF_ELAPSED * summary.elapsed_s))
        return _QUIET_S

    def _tell_failures(self, summary: Summary) -> None:
        """Log final failures; a message reports each retry."""
        for failure in summary.failures:
            attempt = failure.trial_id, failure.attempt
            if failure.final and not failure.is_earlier and attempt not in self._told_failures:
                self._told_failures.add(attempt)
                look = pointer(failure.error_file, failure.other_file, node=failure.node)
                _write(self._stream, f"{failure_text(failure)}, {look}")

    def _tell_phase(self, summary: Summary) -> None:
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

    def abandon(self) -> None:
        """Nothing to undo."""


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


class SilentView:
    """Shows only errors, and outputs that are lost or incomplete."""

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

    def message(self, text: str, level: Level) -> None:
        if level in ("error", "loss"):
            _write(self._stream, text)

    def finish(self, summary: Summary) -> None:
        for line in filter(None, [*failure_lines(summary), unread_text(summary.unread)]):
            _write(self._stream, line)

    def abandon(self) -> None:
        """Nothing to undo."""


def _write(stream: TextIO, text: str) -> None:
    """Print holdfast's own text; it may contain names from anywhere."""
    _print(stream, printable(text, keep="\n"))


def _print(stream: TextIO, text: str) -> None:
    try:
        print(text, file=stream, flush=True)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        print(text.encode(encoding, "replace").decode(encoding), file=stream, flush=True)
