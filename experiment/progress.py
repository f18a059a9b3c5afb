"""What is seen of a run while `fit()` waits: a live table, lines of a log, a notebook, or nothing.

A view is driven by the thread that called `fit()`, a few times a second, with a Summary.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from holdfast.experiment.callbacks import Callback, Tell
from holdfast.experiment.reporters import (
    ProgressReporter,
    html_table,
    is_telling,
    notebook_display,
    text_table,
)
from holdfast.experiment.summary import FailedTrial, Summary, TrialRow, duration, short, size
from holdfast.experiment.trial_view import TrialView, Views
from holdfast.trial.trial import Status, Trial

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table

_WORDS = {
    Status.RUNNING: "running",
    Status.STARTING: "starting",
    Status.STOPPING: "stopping",
    Status.PAUSED: "paused",
    Status.PENDING: "pending",
    Status.TERMINATED: "finished",
    Status.ERROR: "failed",
}
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
_SHOWN_FAILURES = 3
_SHOWN_UPLOADS = 2
_SMALLEST_TABLE = 3
_WIDE_COLUMNS = 100


class ProgressView(Protocol):
    """Shows a run to a person. All methods are called from one thread."""

    def start(self) -> None:
        """The run begins."""

    def update(self, summary: Summary) -> None:
        """This is how it stands; called about four times a second."""

    def log(self, prefix: str, text: str) -> None:
        """A worker (`prefix`: its trial and process) has printed `text`, one or more lines."""

    def message(self, text: str, level: str) -> None:
        """Something the user should know; `level` is "info", "warning" or "error"."""

    def finish(self, summary: Summary) -> None:
        """The run has ended: show what came of it."""

    def abandon(self) -> None:
        """Leave the terminal as it was found, at once and without a word."""


def choose_view(
    verbose: int | None, stream: TextIO, environ: Mapping[str, str], notebook: bool
) -> ProgressView:
    """The view that suits `stream`: none for `verbose=0`, live for a terminal, else lines.

    Continuous integration and dumb terminals count as log files.
    """
    if verbose == 0:
        view: ProgressView = SilentView(stream)
    elif notebook:
        view = NotebookView(stream)
    elif _is_terminal(stream, environ):
        view = LiveView(stream)
    else:
        view = PlainView(stream)
    return UnfailingView(view, stream)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _is_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    if not stream.isatty() or environ.get("CI") or environ.get("TERM", "dumb") == "dumb":
        return False
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")


# -- wording ----------------------------------------------------------------------------------


def counts_text(summary: Summary) -> str:
    """`9/24 done, 2 running, 13 pending, 1 failed`."""
    total = f"{summary.finished}/{summary.total}" if summary.total else f"{summary.finished}"
    waiting = dict(summary.counts)
    if summary.total and not summary.done:
        known = sum(waiting.values())
        waiting[Status.PENDING] = waiting.get(Status.PENDING, 0) + max(0, summary.total - known)
    parts = [
        f"{waiting[status]} {word}"
        for status, word in _WORDS.items()
        if status is not Status.TERMINATED and waiting.get(status)
    ]
    return ", ".join([f"{total} done", *parts])


def best_text(summary: Summary) -> str:
    """The best value with its trial and parameters, empty while there is none."""
    best = summary.best
    if best is None:
        return ""
    params = " ".join(f"{name}={short(value)}" for name, value in best.params.items())
    return f"{best.metric}={short(best.value)} {best.name} {params}".rstrip()


def time_text(summary: Summary) -> str:
    """`1m 20s, about 2m 10s left`."""
    elapsed = duration(summary.elapsed_s)
    if summary.left_s is None or summary.done:
        return elapsed
    return f"{elapsed}, about {duration(summary.left_s)} left"


def failure_text(failure: FailedTrial) -> str:
    """`t_00004 failed at train.py:42 in train: ValueError: bad`."""
    where = f" at {failure.where}" if failure.where else ""
    retries = f" after {_times(failure.retries, 'retry', 'retries')}" if failure.retries else ""
    verb = f"failed{retries}" if failure.final else "will be tried again, it failed"
    return f"{failure.name} {verb}{where}: {short(failure.headline, 300)}"


def storage_text(summary: Summary) -> str:
    """What is on its way to storage, empty where all is there."""
    storage = summary.storage
    if storage is None or not (storage.uploads or storage.pending_bytes or storage.trouble):
        return ""
    uploads = [
        f"{upload.name} {size(upload.done_bytes)}"
        + (f" of {size(upload.total_bytes)}" if upload.total_bytes is not None else "")
        for upload in storage.uploads[:_SHOWN_UPLOADS]
    ]
    more = len(storage.uploads) - len(uploads)
    uploads += [f"{more} more uploads"] if more else []
    age = f"{size(storage.pending_bytes)} not in storage yet, oldest {duration(storage.oldest_s)}"
    return "; ".join([age, *uploads, *([storage.trouble] if storage.trouble else [])])


def closing_text(summary: Summary) -> str:
    """`24 trials in 1m 20s: 23 finished, 1 failed`."""
    ends_first = dict.fromkeys((Status.TERMINATED, Status.ERROR, *_WORDS))
    parts = ", ".join(
        f"{summary.counts[status]} {_WORDS[status]}"
        for status in ends_first
        if summary.counts.get(status)
    )
    number = _times(sum(summary.counts.values()), "trial", "trials")
    return f"{number} in {duration(summary.elapsed_s)}" + (f": {parts}" if parts else "")


def _times(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def hidden_text(hidden: Mapping[Status, int]) -> str:
    """`14 more: 9 finished, 5 pending`, empty where all trials are shown."""
    number = sum(hidden.values())
    parts = ", ".join(f"{count} {_WORDS[status]}" for status, count in hidden.items())
    return f"{number} more: {parts}" if number else ""


def _grouped(failures: Sequence[FailedTrial]) -> list[tuple[FailedTrial, int]]:
    """Failures of one cause once, with how many there are, the first of each."""
    groups: dict[tuple[str, str], list[FailedTrial]] = {}
    for failure in failures:
        groups.setdefault((failure.headline, failure.where), []).append(failure)
    return [(group[0], len(group)) for group in groups.values()]


def failure_lines(summary: Summary) -> Iterator[str]:
    """The first causes, each with where it happened and where its log is."""
    groups = _grouped(summary.failures)
    for failure, count in groups[:_SHOWN_FAILURES]:
        alike = f" (and {_times(count - 1, 'trial', 'trials')} alike)" if count > 1 else ""
        yield failure_text(failure) + alike
        yield f"  see {failure.error_file}"
    if len(groups) > _SHOWN_FAILURES:
        yield f"  and {_times(len(groups) - _SHOWN_FAILURES, 'other cause', 'other causes')}"


def table_of(
    summary: Summary, *, width: int = 0, max_rows: int | None = None
) -> tuple[list[str], list[list[str]], list[TrialRow]]:
    """Headers, cells and trials of the table; with a `width`, only as many columns as fit."""
    rows = list(summary.rows[:max_rows])
    by_name = not width or width >= _WIDE_COLUMNS
    goal, others = summary.metrics[:1], summary.metrics[1:]
    headers = ["trial", "status", "iter", "time", *map(_tail, (*goal, *summary.params, *others))]
    cells = [
        [
            row.name if by_name else row.trial_id,
            row.status.value + (f" ↻{row.retries}" if row.retries else ""),
            str(row.iteration or ""),
            duration(row.time_total_s) if row.iteration else "",
            *(_cell(row.metrics.get(name)) for name in goal),
            *(_cell(row.params.get(name)) for name in summary.params),
            *(_cell(row.metrics.get(name)) for name in others),
        ]
        for row in rows
    ]
    fitting = _fitting(headers, cells, width) if width else len(headers)
    return headers[:fitting], [line[:fitting] for line in cells], rows


def _tail(name: str, width: int = 16) -> str:
    """The last part of `net/width`, which tells most."""
    last = name.rpartition("/")[2] or name
    return short(last, width)


def _cell(value: object) -> str:
    return "" if value is None else short(value, 16)


def _fitting(headers: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> int:
    """How many of the columns fit, two spaces between them."""
    used = -2
    for at, column in enumerate(zip(headers, *cells, strict=True)):
        used += 2 + max(map(len, column))
        if used > width and at > 1:
            return at
    return len(headers)


# -- views ------------------------------------------------------------------------------------


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

    def message(self, text: str, level: str) -> None:
        self._try(lambda view: view.message(text, level))

    def finish(self, summary: Summary) -> None:
        if not self._try(lambda view: view.finish(summary)):
            self._try(lambda view: view.finish(summary))

    def abandon(self) -> None:
        self._try(lambda view: view.abandon())

    def _try(self, show: Callable[[ProgressView], None]) -> bool:
        try:
            show(self.view)
        except Exception as error:  # told below, where the stream still takes anything
            self._replace(f"the progress display failed, the run goes on: {error!r}", error)
            return False
        return True

    def _replace(self, text: str, error: Exception) -> None:
        failed = self.view
        with contextlib.suppress(Exception):  # it has failed already, and the user is told so
            failed.abandon()
        simple = isinstance(failed, (PlainView, SilentView))
        self.view = SilentView(self._stream) if simple else PlainView(self._stream)
        with contextlib.suppress(Exception):  # a stream that is gone takes no message either
            self.view.message("\n".join([text, *traceback.format_exception(error)]), "error")


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

    def message(self, text: str, level: str) -> None:
        if level == "error":
            _write(self._stream, text)

    def finish(self, summary: Summary) -> None:
        for line in failure_lines(summary):
            _write(self._stream, line)

    def abandon(self) -> None:
        """Nothing was changed."""


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
        for line in _printed(text):
            _write(self._stream, f"({prefix}) {line}")

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


def closing_lines(summary: Summary) -> list[str]:
    """What stands below the last table; empty where there is nothing to say."""
    return [
        hidden_text(summary.hidden),
        *failure_lines(summary),
        f"best {best_text(summary)}" if summary.best else "",
        storage_text(summary),
        f"{closing_text(summary)}. Results: {summary.path}",
    ]


def _printed(text: str) -> list[str]:
    """The lines as they look once printed: a progress bar goes back and overwrites itself."""
    lines = text.removesuffix("\n").split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def _write(stream: TextIO, text: str) -> None:
    try:
        print(text, file=stream, flush=True)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        print(text.encode(encoding, "replace").decode(encoding), file=stream, flush=True)


class _Shown:
    """What rich draws below everything printed: whatever stands in `now` at that moment."""

    def __init__(self) -> None:
        self.now: RenderableType = ""

    def __rich__(self) -> RenderableType:
        return self.now


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
        self._lines: list[tuple[str, str, str]] = []
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
        if self._lines:
            self._print_lines(self._console)  # draws the table below them, too
        else:
            self._live.refresh()
        took = self._clock() - began
        self._next_at = began + took / self._share

    def log(self, prefix: str, text: str) -> None:
        """Shown with the next update: each print above the table draws the whole table again."""
        self._lines += [(f"({prefix}) ", line, "") for line in _printed(text)]

    def message(self, text: str, level: str) -> None:
        self._lines.append(("", text, _LEVEL_STYLES.get(level, "")))

    def finish(self, summary: Summary) -> None:
        from rich.text import Text

        console = self._console
        self.abandon()
        if console is None:
            return
        self._print_lines(console)
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

    def _print_lines(self, console: Console) -> None:
        from rich.text import Text

        lines, self._lines = self._lines, []
        shown = Text("\n").join(
            Text.assemble((prefix, "dim cyan"), Text.from_ansi(text, style=style))
            for prefix, text, style in lines
        )
        console.print(shown, soft_wrap=True)

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


def _in_trouble(summary: Summary) -> bool:
    return summary.storage is not None and bool(summary.storage.trouble)


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


class ReporterView:
    """Asks a user's ProgressReporter, once a second, whether it wants to report."""

    def __init__(
        self,
        reporter: ProgressReporter,
        views: Views,
        trials: Callable[[], Iterable[Trial]],
        lines: ProgressView,
        *,
        every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter = reporter
        self._views = views
        self._trials = trials
        self._lines = lines
        self._every_s = every_s
        self._clock = clock
        self._next_at = 0.0

    def start(self) -> None:
        """`ProgressReporter.setup` is called by whoever knows the run."""

    def update(self, summary: Summary) -> None:
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at = now + self._every_s
        trials = self._shown()
        if self._reporter.should_report(trials, done=False):
            self._reporter.report(trials, False, *self._info(summary))

    def log(self, prefix: str, text: str) -> None:
        self._lines.log(prefix, text)

    def message(self, text: str, level: str) -> None:
        self._lines.message(text, level)

    def finish(self, summary: Summary) -> None:
        self._reporter.report(self._shown(), True, *self._info(summary))
        self._lines.message(closing_lines(summary)[-1], "info")

    def abandon(self) -> None:
        self._lines.abandon()

    def _shown(self) -> list[TrialView]:
        for trial in self._trials():
            self._views.show(trial)
        return self._views.trials

    def _info(self, summary: Summary) -> list[str]:
        return list(filter(None, (f"Results: {summary.path}", storage_text(summary))))


class ResultLines(Callback):
    """For `verbose` 2 and 3: a line for each trial that starts or ends, from 3 on each result."""

    def __init__(self, verbose: int, tell: Tell) -> None:
        self._verbose = verbose
        self._tell = tell

    def on_trial_start(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        params = " ".join(f"{k}={short(v)}" for k, v in trial.evaluated_params.items())
        self._tell(f"{trial} started {params}".rstrip(), "info")

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TrialView],
        trial: TrialView,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        if self._verbose >= 3:
            self._tell(f"{trial} {_result_text(trial, result)}", "info")

    def on_trial_complete(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._tell(f"{trial} finished at {_result_text(trial, trial.last_result)}", "info")


def _result_text(trial: TrialView, row: Mapping[str, Any]) -> str:
    values = " ".join(f"{k}={short(v)}" for k, v in row.items() if is_telling(k, v))
    elapsed = duration(row.get("time_total_s", 0.0))
    return f"iteration {trial.iteration} after {elapsed} {values}".rstrip()
