"""A run as a table that stays at the bottom of a terminal, drawn by rich.

`LogBuffer` holds the lines that trials print until they are drawn above it.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.thread import Level
from holdfast.experiment.progress.summary import ProgressView, Summary
from holdfast.experiment.progress.trial_table import (
    Line,
    cut_line,
    fitted_table,
    picture,
    table_lines,
)
from holdfast.experiment.progress.wording import (
    closing_lines,
    failure_text,
    first_failures,
    left_out_text,
    pointer,
)
from holdfast.names import printable
from holdfast.text.values import printed, skipped_text, width_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

_LEVEL_STYLES = {"warning": "yellow", "loss": "yellow", "error": "bold red"}
# The most lines that are printed above the table at once; takes under 0.1 s even with colours.
_MOST_LINES = 1_000
# Seconds after which an unchanged picture is drawn again: other programs may have written.
_AGAIN_S = 5.0
# The part of a core that lines above the table may take.
_LINES_SHARE = 0.05


class TerminalView(ProgressView):
    """A table that stays at the bottom of the terminal while lines scroll by above it.

    Drawing it takes at most `share` of a core, lines above it at most 5% more: after each drawing
    it pauses on the `clock` in proportion to the CPU seconds that it `spent`.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        share: float = 0.003,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._stream = stream
        self._share = share
        self._clock = clock
        self._spent = spent
        self._next_at = self._drawn_at = 0.0
        self._drawing_s = 0.0
        self._log_buffer = LogBuffer(_MOST_LINES)
        self._messages: list[tuple[str, str]] = []
        self._shown_failures: set[tuple[str, int]] = set()
        self._prints = Prints(lambda line: self.log("", line))
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
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start()
        self._prints.start()

    def update(self, summary: Summary) -> None:
        live, console = self._live, self._console
        if live is None or console is None:
            return
        now, spent = self._clock(), self._spent()
        if now < self._next_at:
            return
        self._show_failures(summary)
        lines_s = 0.0
        if self._messages or not self._log_buffer.is_empty:
            self._draw(summary, console)
            self._print_lines(console)  # this also draws the table below them
            lines_s = max(0.0, self._spent() - spent - self._drawing_s)
        else:
            if self._draw(summary, console, now):
                live.refresh()
            self._drawing_s = self._spent() - spent
        self._next_at = now + self._drawing_s / self._share + lines_s / _LINES_SHARE

    def _show_failures(self, summary: Summary) -> None:
        """Print the first failure of each cause above the table, where its log's path can be
        copied."""
        for failure in first_failures(summary):
            attempt = failure.trial_id, failure.attempt
            if attempt not in self._shown_failures:
                self._shown_failures.add(attempt)
                look = pointer(failure.error_file, failure.other_file, node=failure.node)
                self.message(f"{failure_text(failure)}\n  {look}", "error")

    def log(self, prefix: str, text: str) -> None:
        """Shown with the next update: each print above the table draws the whole table again."""
        for line in printed(text):
            self._log_buffer.put(prefix, line)

    def skipped(self, prefix: str, count: int) -> None:
        self._log_buffer.skip(prefix, count)

    def message(self, text: str, level: Level) -> None:
        """Shown with the next update, or at once if there is no table any more."""
        text = printable(text, keep="\n")
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
            table = fitted_table(summary, width=console.width)
            lines = table_lines(summary, summary.rows, table)
            if table.left_out:
                lines.append(((f"… {left_out_text(table.left_out)}", "dim"),))
            console.print(_Shown(lines, console.width), end="")
        *notes, last = closing_lines(summary)
        for note in filter(None, notes):
            console.print(Text(printable(note)), soft_wrap=True)
        console.print(Text(printable(last), style="bold"), soft_wrap=True)

    def abandon(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._prints.stop()
            live.stop()
        if self._console is not None:
            self._print_lines(self._console)

    def _draw(self, summary: Summary, console: Console, now: float | None = None) -> bool:
        """True if there is something to draw. With `now`, also if the last drawing is too old."""
        size = console.size
        if size.width < self._shown.width:
            self._take_back(console, size.width)
        lines = picture(summary, width=size.width, height=size.height)
        is_new = lines != self._shown.lines or size.width != self._shown.width
        self._shown.lines, self._shown.width = lines, size.width
        is_due = now is not None and now - self._drawn_at >= _AGAIN_S
        if is_new or is_due:
            self._drawn_at = self._drawn_at if now is None else now
        return is_new or is_due

    def _take_back(self, console: Console, width: int) -> None:
        """Erase lines that a narrower terminal has wrapped.

        rich erases as many lines as it wrote, so this erases the additional ones.
        """
        from rich.control import Control
        from rich.segment import ControlType

        widths = [sum(width_of(text) for text, _ in line) for line in self._shown.lines]
        broken = sum(max(0, -(-each // width) - 1) for each in widths)
        if broken:
            console.control(
                Control(
                    *[
                        (ControlType.ERASE_IN_LINE, 2),
                        *[(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * broken,
                    ]
                )
            )

    def _print_lines(self, console: Console) -> None:
        taken, messages = self._log_buffer.take(), self._messages
        self._messages = []
        lines = [
            *((f"({at}) ", skipped_text(count), "") for at, count in taken.skipped.items()),
            *((f"({at}) " if at else "", line, "") for at, line in taken.lines),
            *(("", text, style) for text, style in messages),
        ]
        if lines:
            console.print(_Printed(lines), soft_wrap=True, end="")


class _Shown:
    """Lines of a `width` that rich draws."""

    def __init__(self, lines: Sequence[Line] = (), width: int = 0) -> None:
        self.lines = lines
        self.width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.style import Style

        lines, width = self.lines, options.max_width
        if width < self.width:  # the terminal has become narrower meanwhile
            lines = [cut_line(line, width) for line in lines]
        for line in lines:
            for text, style in line:
                yield Segment(printable(text), Style.parse(style) if style else None)
            yield Segment.line()


class _Printed:
    """Lines with prefix and style. A thousand without colours take 3 ms; with rich's Text, 80
    ms."""

    def __init__(self, lines: Sequence[tuple[str, str, str]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.control import strip_control_codes
        from rich.segment import Segment
        from rich.style import Style
        from rich.text import Text

        for prefix, text, style in self._lines:
            yield Segment(printable(prefix), Style.parse("dim cyan"))
            if style or "\x1b" in text:
                yield Text.from_ansi(text, style=style)
            else:
                yield Segment(strip_control_codes(text))
                yield Segment.line()


class StdoutAbove(io.TextIOBase):
    """Replaces `stream`: passes whole lines to `show`, from any thread."""

    def __init__(self, stream: TextIO, show: Callable[[str], None]) -> None:
        self.stream = stream
        self._show = show
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._show(line)
        return len(text)

    def flush(self) -> None:
        """Lines are shown with the next drawing."""

    def end(self) -> None:
        """Show an incomplete line as it is."""
        if self._begun:
            self._show(self._begun)
            self._begun = ""

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    def __getattr__(self, name: str) -> Any:
        """Attributes that only the stream itself has, such as its `buffer`."""
        return getattr(self.stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding


class Prints:
    """Captures stdout and stderr from `start` to `stop`, if they are terminals.

    The script's prints, and the lines of loggers that write to the terminal, are shown above the
    table with its next drawing. Written directly, they would break the table.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._caught: dict[str, StdoutAbove] = {}
        self._handlers: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []

    def start(self) -> None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None and stream.isatty():
                self._caught[name] = caught = StdoutAbove(stream, self._show)
                setattr(sys, name, caught)
                self._divert(stream, caught)

    def stop(self) -> None:
        """Restore the streams, unless other code has replaced holdfast's."""
        for handler, stream in self._handlers:
            if isinstance(handler.stream, StdoutAbove):
                handler.setStream(stream)
        for name, caught in self._caught.items():
            caught.end()
            if getattr(sys, name) is caught:
                setattr(sys, name, caught.stream)
        self._caught, self._handlers = {}, []

    def _divert(self, stream: TextIO, caught: StdoutAbove) -> None:
        """Redirect handlers of `logging`, which keep the stream that they were created with."""
        for handler in _handlers():
            if handler.stream is stream:
                self._handlers.append((handler, stream))
                handler.setStream(caught)  # type: ignore[arg-type]


def _handlers() -> Iterator[logging.StreamHandler[TextIO]]:
    known = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in known:
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler):
                yield handler


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
