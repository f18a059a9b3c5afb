"""A run as a table that stays at the bottom of a terminal, drawn by rich."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from holdfast.experiment.relay import Relay
from holdfast.experiment.summary import Summary
from holdfast.experiment.trial_table import table_of
from holdfast.experiment.wording import (
    best_text,
    closing_lines,
    counts_text,
    failure_lines,
    hidden_text,
    printed,
    skipped_text,
    storage_text,
    time_text,
)
from holdfast.trial.trial import Status

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.live import Live
    from rich.table import Table

_STYLES = {
    Status.RUNNING: "cyan",
    Status.STARTING: "cyan dim",
    Status.STOPPING: "cyan dim",
    Status.PAUSED: "yellow",
    Status.PENDING: "dim",
    Status.TERMINATED: "green",
    Status.ERROR: "red",
}
_LEVEL_STYLES = {"warning": "yellow", "error": "bold red"}
_SMALLEST_TABLE = 3
# So many are printed above the table in one go, within 0.1 s even where all have colours.
_MOST_LINES = 1_000


class LiveView:
    """A table that stays at the bottom of the terminal while lines scroll by above it.

    It takes at most `share` of the time of the thread that drives it.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        share: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._share = share
        self._clock = clock
        self._next_at = 0.0
        self._relay = Relay(_MOST_LINES)
        self._messages: list[tuple[str, str]] = []
        self._shown = _Shown()
        self._console: Console | None = None
        self._live: Live | None = None

    def start(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=self._stream, highlight=False)
        self._live = Live(
            self._shown,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=self._stream is sys.stdout,
            redirect_stderr=self._stream is sys.stdout and sys.stderr.isatty(),
            vertical_overflow="crop",
        )
        self._live.start()

    def update(self, summary: Summary) -> None:
        began = self._clock()
        if self._live is None or self._console is None or began < self._next_at:
            return
        self._shown.now = self._picture(summary, self._console)
        if not self._print_lines(self._console):  # which draws the table below them, too
            self._live.refresh()
        took = self._clock() - began
        self._next_at = began + took / self._share

    def log(self, prefix: str, text: str) -> None:
        """Shown with the next update: each print above the table draws the whole table again."""
        for line in printed(text):
            self._relay.put(prefix, line)

    def skipped(self, prefix: str, count: int) -> None:
        self._relay.skip(prefix, count)

    def message(self, text: str, level: str) -> None:
        """Shown with the next update; at once where the table is there no more."""
        self._messages.append((text, _LEVEL_STYLES.get(level, "")))
        if self._live is None and self._console is not None:
            self._print_lines(self._console)

    def finish(self, summary: Summary) -> None:
        from rich.text import Text

        console = self._console
        self.abandon()
        if console is None:
            return
        if summary.rows:
            console.print(self._table(summary, console, len(summary.rows)))
        lines = closing_lines(summary)
        for line in filter(None, lines[:-1]):
            console.print(Text(line), soft_wrap=True)
        console.print(Text(lines[-1], style="bold"), soft_wrap=True)

    def abandon(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        if self._console is not None:
            self._print_lines(self._console)

    def _print_lines(self, console: Console) -> bool:
        """Whether there was anything to be printed."""
        taken, messages = self._relay.take(), self._messages
        self._messages = []
        lines = [
            *((f"({at}) ", skipped_text(count), "") for at, count in taken.skipped.items()),
            *((f"({at}) ", line, "") for at, line in taken.lines),
            *(("", text, style) for text, style in messages),
        ]
        if lines:
            console.print(_Lines(lines), soft_wrap=True, end="")
        return bool(lines)

    def _picture(self, summary: Summary, console: Console) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        below = [
            (f"best  {best_text(summary)}" if summary.best else "", "green"),
            *((line, "red") for line in failure_lines(summary)),
            (storage_text(summary), "yellow" if _in_trouble(summary) else "dim"),
            (f"stopping: {summary.ending}" if summary.ending else "", "yellow"),
        ]
        notes = [
            Text(line, style=style, no_wrap=True, overflow="ellipsis")
            for line, style in below
            if line
        ]
        # Half of the screen is left to what scrolls by above.
        room = max(_SMALLEST_TABLE, min(console.height // 2, console.height - len(notes) - 5))
        hidden = dict(summary.hidden)
        for row in summary.rows[room:]:
            hidden[row.status] = hidden.get(row.status, 0) + 1
        parts: list[RenderableType] = [self._header(summary, console)]
        if summary.rows:
            parts.append(self._table(summary, console, room))
        if hidden:
            parts.append(Text(f"… {hidden_text(hidden)}", style="dim"))
        return Group(*parts, *notes)

    def _header(self, summary: Summary, console: Console) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        title = Text.assemble((summary.name, "bold"), "  ", (time_text(summary), "cyan"))
        title.truncate(console.width, overflow="ellipsis")
        counts = counts_text(summary)
        line = Table.grid(padding=(0, 2))
        bar_width = max(10, min(40, console.width - len(counts) - 2))
        bar = ProgressBar(
            total=summary.total,
            completed=summary.finished,
            width=bar_width,
            pulse=not summary.total,
        )
        line.add_row(bar, Text(counts, no_wrap=True, overflow="ellipsis"))
        return Group(title, line)

    def _table(self, summary: Summary, console: Console, max_rows: int) -> Table:
        from rich.table import Table
        from rich.text import Text

        headers, cells, rows = table_of(summary, width=console.width, max_rows=max_rows)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold dim")
        for at, header in enumerate(headers):
            table.add_column(header, no_wrap=True, justify="left" if at < 2 else "right")
        for row, line in zip(rows, cells, strict=True):
            style = _STYLES[row.status]
            is_best = summary.best is not None and row.trial_id == summary.best.trial_id
            table.add_row(line[0], Text(line[1], style=style), *line[2:], style="bold" * is_best)
        return table


class _Shown:
    """What rich draws below everything printed: whatever stands in `now` at that moment."""

    def __init__(self) -> None:
        self.now: RenderableType = ""

    def __rich__(self) -> RenderableType:
        return self.now


class _Lines:
    """Each with its prefix and style. A thousand without colours take 3 ms, as rich's Text 80."""

    def __init__(self, lines: Sequence[tuple[str, str, str]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.control import strip_control_codes
        from rich.segment import Segment
        from rich.style import Style
        from rich.text import Text

        for prefix, text, style in self._lines:
            yield Segment(prefix, Style.parse("dim cyan"))
            if style or "\x1b" in text:
                yield Text.from_ansi(text, style=style)
            else:
                yield Segment(strip_control_codes(text))
                yield Segment.line()


def _in_trouble(summary: Summary) -> bool:
    return summary.storage is not None and bool(summary.storage.trouble)
