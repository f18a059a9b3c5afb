"""Progress reporters that users create, subclass and pass to `RunConfig(progress_reporter=)`.

The thread that waits in `fit()` calls them through a `ReporterView`, with the trials as users see
them. `ResultLines` adds the lines of `verbose` 2 and 3 to any view.
"""

from __future__ import annotations

import html
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.described import Call, Construction, Described
from holdfast.experiment.callbacks.callback import Callback
from holdfast.experiment.callbacks.thread import Level, Tell
from holdfast.experiment.callbacks.trial_view import TrialView, Views
from holdfast.experiment.progress.summary import ProgressView, Summary
from holdfast.experiment.progress.views import notebook_display
from holdfast.experiment.progress.wording import closing_lines, node_lines, storage_text
from holdfast.experiment.records.rows import AUTOMATIC, CONFIG
from holdfast.names import printable
from holdfast.plain_numbers import finite_number
from holdfast.text.tables import html_table, text_table
from holdfast.text.trials import stop_text
from holdfast.text.values import cut_apart, duration, format_cell, format_value, values_text
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.metrics import lookup
from holdfast.trial.trial import Trial
from holdfast.trial.values import flatten

Columns = Mapping[str, str] | Sequence[str]

_STATUS_ORDER = ("RUNNING", "PAUSED", "TERMINATED", "ERROR", "PENDING")
_NODE = "node"


class ProgressReporter(Described):
    """Base class of reporters: override `report`, and `should_report` to change how often it is
    called."""

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Called once, before the first trial; `start_time` is in seconds since the epoch."""

    def should_report(self, trials: list[TrialView], done: bool = False) -> bool:
        """Called several times a second, and with `done` at the end."""
        return True

    def report(self, trials: list[TrialView], done: bool, *sys_info: str) -> None:
        """Show the trials; `sys_info` are lines about the run and the machine."""
        raise NotImplementedError(f"{type(self).__name__} must define report()")


class TableReporter(ProgressReporter):
    """The shared parts of table reporters; `CLIReporter` describes the parameters."""

    def __init__(
        self,
        *,
        metric_columns: Columns | None = None,
        parameter_columns: Columns | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if mode not in (None, "max", "min"):
            raise InvalidConfig(f"mode must be 'max' or 'min', not {mode!r}")
        self._metric_columns = _headers(metric_columns)
        self._infers_metrics = metric_columns is None
        self._parameter_columns = _headers(parameter_columns)
        self._infers_parameters = not parameter_columns
        self._total_samples = total_samples
        self._max_progress_rows = max_progress_rows
        self._max_error_rows = max_error_rows
        self._max_column_length = max_column_length
        self._max_report_frequency = max_report_frequency
        self._infer_limit = infer_limit
        self._intermediate_tables = print_intermediate_tables is not False
        self._metric, self._mode = metric, mode
        self._sort_by_metric = sort_by_metric
        self._clock = clock
        self._start_time: float | None = None
        self._last_report = -math.inf

    # Columns added later; a class attribute, because objects in older files lack it.
    _added: tuple[Call, ...] = ()

    def construction(self) -> Construction:
        return replace(super().construction(), calls=self._added)

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Fill in the settings that the constructor did not get."""
        self._start_time = self._clock() if start_time is None else start_time
        self._total_samples = self._total_samples or total_samples
        self._metric = self._metric or metric
        self._mode = self._mode or mode

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Show `metric` under the header `representation`. Raises ValueError if it already has a
        column."""
        _add(self._metric_columns, metric, representation)
        self._added += (("add_metric_column", (metric, representation), {}),)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Show a parameter, such as `net/width`. Raises ValueError if it already has a column."""
        _add(self._parameter_columns, parameter, representation)
        self._infers_parameters = False
        self._added += (("add_parameter_column", (parameter, representation), {}),)

    def should_report(self, trials: list[TrialView], done: bool = False) -> bool:
        """Every `max_report_frequency` seconds, and at the end."""
        now = self._clock()
        if not done and now - self._last_report < self._max_report_frequency:
            return False
        self._last_report = now
        return True

    def _lines(self, trials: Sequence[TrialView], sys_info: Iterable[str]) -> list[str]:
        counts = Counter(trial.status for trial in trials)
        parts = ", ".join(f"{counts[name]} {name}" for name in _STATUS_ORDER if counts[name])
        number = f"{len(trials)}/{self._total_samples}" if self._total_samples else len(trials)
        now = self._clock()
        elapsed = duration(now - (now if self._start_time is None else self._start_time))
        lines = [f"Running for {elapsed}", *sys_info, f"Number of trials: {number} ({parts})"]
        best = self._best(trials)
        if best is not None:
            value = format_value(_number(best, self._metric))
            params = ", ".join(f"{k}={format_value(v)}" for k, v in best.evaluated_params.items())
            lines.append(f"Best so far: {self._metric}={value} ({best}) {params}".rstrip())
        return lines

    def _best(self, trials: Sequence[TrialView]) -> TrialView | None:
        if self._metric is None or self._mode is None:
            return None
        searched = (trial for trial in trials if not trial.confirms)
        best = max(searched, key=self._rank, default=None)
        return best if best is not None and _number(best, self._metric) is not None else None

    def _rank(self, trial: TrialView) -> float:
        value = _number(trial, self._metric)
        if value is None:
            return -math.inf
        return -value if self._mode == "min" else value

    def _progress(
        self, trials: Sequence[TrialView], done: bool
    ) -> tuple[list[str], list[list[str]]]:
        """Headers and rows of the table of trials."""
        shown = sorted(trials, key=lambda trial: _STATUS_ORDER.index(trial.status))
        if self._sort_by_metric and self._metric:
            shown = sorted(trials, key=self._rank, reverse=True)
        if not done:
            shown = shown[: self._max_progress_rows]
        metrics = self._shown_metrics(shown)
        params = self._shown_parameters(shown)
        node = [_NODE] if any(trial.node for trial in shown) else []
        columns = cut_apart([*params.values(), *metrics.values()], self._max_column_length)
        rows = [
            [
                str(trial),
                trial.status,
                *(trial.node for _ in node),
                *(self._cell(_parameter(trial, name)) for name in params),
                *(self._cell(lookup(trial.last_result, name)) for name in metrics),
            ]
            for trial in shown
        ]
        return ["Trial name", "status", *node, *columns], rows

    def _shown_metrics(self, shown: Sequence[TrialView]) -> dict[str, str]:
        if not self._infers_metrics:
            return self._metric_columns
        found = {"training_iteration": "iter", "time_total_s": "total time (s)"}
        found |= self._metric_columns
        if self._metric:
            found.setdefault(self._metric, self._metric)
        room = self._infer_limit - (self._metric is not None)
        for trial in shown:
            for name, value in trial.last_result.items():
                if room > 0 and name not in found and is_telling(name, value):
                    found[name] = name
                    room -= 1
        return found

    def _shown_parameters(self, shown: Sequence[TrialView]) -> dict[str, str]:
        if not self._infers_parameters:
            return self._parameter_columns
        return {name: name for trial in shown for name in trial.evaluated_params}

    def _errors(self, trials: Iterable[TrialView], done: bool) -> tuple[int, list[list[str]]]:
        """The number of trials that failed at least once, and the rows of their table."""
        failed = [trial for trial in trials if trial.error_file]
        shown = failed if done else failed[: self._max_error_rows]
        return len(failed), [[str(t), str(t.num_failures), t.error_file or ""] for t in shown]

    def _cell(self, value: Any) -> str:
        return format_cell(value, self._max_column_length)


_ERROR_HEADERS = ["Trial name", "# failures", "error file"]


class CLIReporter(TableReporter):
    """Prints tables to the terminal.

    `metric_columns` and `parameter_columns` are names, or a dict of name to header; by default the
    metric, up to `infer_limit` other reported numbers and all varied parameters are shown.
    Intermediate tables have at most `max_progress_rows` and `max_error_rows`; the last one has all
    trials. `max_report_frequency` is the number of seconds between two reports. With
    `print_intermediate_tables=False` only the last report has tables. `sort_by_metric` puts the
    best trial first. Headers with more than `max_column_length` characters are cut from the left,
    unless two would then be equal. `total_samples`, `metric` and `mode` are those of the run if
    they are None. `clock` returns seconds since the epoch.

    Raises InvalidConfig.
    """

    _printed = ""

    def report(self, trials: list[TrialView], done: bool, *sys_info: str) -> None:
        text = printable(self._text(trials, done, sys_info), keep="\n")
        untimed = text.split("\n", 2)[-1]
        # A report that came just before the end has said all, except for how long it took.
        if not done or untimed != self._printed:
            print(text, flush=True)
        self._printed = untimed

    def _text(self, trials: Sequence[TrialView], done: bool, sys_info: Iterable[str]) -> str:
        parts = ["== Status ==", *self._lines(trials, sys_info)]
        if done or self._intermediate_tables:
            parts.append(text_table(*self._progress(trials, done)))
            number, rows = self._errors(trials, done)
            if number:
                parts += [f"Number of errored trials: {number}", text_table(_ERROR_HEADERS, rows)]
        return "\n".join(parts) + "\n"


class JupyterNotebookReporter(TableReporter):
    """Shows tables below the cell of a notebook.

    `overwrite`: each report replaces the previous one and all other output of the cell. The other
    parameters are those of `CLIReporter`.
    """

    def __init__(self, *, overwrite: bool = True, **parameters: Any) -> None:
        super().__init__(**parameters)
        self._overwrite = overwrite

    def report(self, trials: list[TrialView], done: bool, *sys_info: str) -> None:
        self.display(self._html(trials, done, sys_info))

    def display(self, string: str) -> None:
        """Show HTML below the cell; override this to show it elsewhere."""
        notebook = notebook_display()
        if self._overwrite:
            notebook.clear_output(wait=True)
        notebook.display(notebook.HTML(string))

    def _html(self, trials: Sequence[TrialView], done: bool, sys_info: Iterable[str]) -> str:
        parts = [f"<div>{html.escape(line)}</div>" for line in self._lines(trials, sys_info)]
        if done or self._intermediate_tables:
            parts.append(html_table(*self._progress(trials, done)))
            number, rows = self._errors(trials, done)
            if number:
                parts += [f"<div>Number of errored trials: {number}</div>"]
                parts += [html_table(_ERROR_HEADERS, rows)]
        return "\n".join(parts)


def _headers(columns: Columns | None) -> dict[str, str]:
    if isinstance(columns, str):
        raise InvalidConfig(
            f"columns must be a list of names, or a dict of name to header, not {columns!r}"
        )
    if isinstance(columns, Mapping):
        return dict(columns)
    return {name: name for name in columns or ()}


def _add(columns: dict[str, str], name: str, header: str | None) -> None:
    if name in columns:
        raise ValueError(f"there is already a column for {name!r}")
    columns[name] = header or name


def is_telling(name: str, value: object) -> bool:
    """True if an item of a row is a number of the user's, not one of holdfast's."""
    return type(value) in (int, float) and name not in AUTOMATIC


def _number(trial: TrialView, metric: str | None) -> float | None:
    """The value as a number; None if it is missing, NaN or infinite."""
    return finite_number(lookup(trial.last_result, metric)) if metric else None


def _parameter(trial: TrialView, name: str) -> Any:
    evaluated = trial.evaluated_params
    return evaluated[name] if name in evaluated else lookup(trial.config, name)


_EVERY_S = 1.0


class ReporterView(ProgressView):
    """Asks a user's ProgressReporter once a second whether it wants to report.

    The caller, which knows the run, calls its `setup`.
    """

    def __init__(
        self,
        reporter: ProgressReporter,
        views: Views,
        trials: Callable[[], Iterable[Trial]],
        lines: ProgressView,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter = reporter
        self._views = views
        self._trials = trials
        self._lines = lines
        self._clock = clock
        self._next_at = 0.0

    def update(self, summary: Summary) -> None:
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at = now + _EVERY_S
        trials = self._shown()
        if self._reporter.should_report(trials, done=False):
            self._reporter.report(trials, False, *self._info(summary))

    def log(self, prefix: str, text: str) -> None:
        self._lines.log(prefix, text)

    def skipped(self, prefix: str, count: int) -> None:
        self._lines.skipped(prefix, count)

    def message(self, text: str, level: Level) -> None:
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
        lines = (f"Results: {summary.path}", storage_text(summary), *node_lines(summary))
        return list(filter(None, lines))


_BRIEF, _DETAILED = 2, 3
# Not among a result's details: its first line has them, or they say nothing about it.
_SAID = frozenset({"trial_id", "training_iteration", "time_total_s", "done", "should_checkpoint"})


class ResultLines(Callback):
    """For `verbose` 2 and 3: a line for each trial that starts or ends, and for its results.

    2: the numbers of the newest result, at most once a second and trial. 3: all values of
    every result, one per line.
    """

    def __init__(
        self,
        verbose: int,
        tell: Tell,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verbose = verbose
        self._tell = tell
        self._clock = clock
        self._written_at: dict[str, float] = {}

    def on_trial_start(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._tell(f"{trial} started {values_text(trial.evaluated_params)}".rstrip(), "info")

    def on_trial_result(
        self,
        iteration: int,
        trials: list[TrialView],
        trial: TrialView,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        step = result.get("training_iteration", trial.iteration)
        if self._verbose >= _DETAILED:
            lines = [f"{trial} {_headline(result, step)}", *_details(result)]
            self._tell("\n".join(lines), "info")
        elif self._verbose >= _BRIEF and self._is_due(trial.trial_id):
            self._tell(f"{trial} {_brief(result, step)}", "info")

    def on_trial_complete(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        self._written_at.pop(trial.trial_id, None)
        ended = stop_text(trial.stop)
        self._tell(f"{trial} {ended} at {_brief(trial.last_result, trial.iteration)}", "info")

    def on_trial_error(
        self, iteration: int, trials: list[TrialView], trial: TrialView, **info: Any
    ) -> None:
        """The views report errors."""
        self._written_at.pop(trial.trial_id, None)

    def _is_due(self, trial_id: str) -> bool:
        now = self._clock()
        if now - self._written_at.get(trial_id, -_EVERY_S) < _EVERY_S:
            return False
        self._written_at[trial_id] = now
        return True


def _headline(row: Mapping[str, Any], iteration: int) -> str:
    return f"iteration {iteration} after {duration(row.get('time_total_s', 0.0))}"


def _brief(row: Mapping[str, Any], iteration: int) -> str:
    numbers = {name: value for name, value in row.items() if is_telling(name, value)}
    return f"{_headline(row, iteration)} {values_text(numbers)}".rstrip()


def _details(row: Mapping[str, Any]) -> Iterator[str]:
    """All values of a row except the configuration, sorted by name."""
    values = flatten({name: value for name, value in row.items() if name != CONFIG})
    for name in sorted(values):
        if name not in _SAID:
            yield f"  {name}: {format_value(values[name], 100)}"
