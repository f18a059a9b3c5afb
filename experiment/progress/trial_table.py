"""The table of trials, and a run as lines for a terminal. Pure: no I/O.

A line is styled texts. Styles are words that rich understands (`bold red`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple, TypeVar

from holdfast.experiment.progress.summary import Summary, TrialRow
from holdfast.experiment.progress.wording import (
    best_text,
    counts_text,
    failure_lines,
    hidden_text,
    left_out_text,
    node_lines,
    storage_text,
    time_text,
    wait_lines,
)
from holdfast.names import printable
from holdfast.text.trials import state_word
from holdfast.text.values import (
    cut,
    duration,
    filled,
    fitting,
    format_cell,
    joined,
    param_cell,
    short_headers,
    size,
    width_of,
)
from holdfast.trial.trial import Status

# Names and states are left-aligned, numbers right-aligned.
_LEFT_COLUMNS = 2
_WIDE_COLUMNS = 100
_CELL_WIDTH = 16
_FIRST = ("trial", "status")
_NODE = "node"
_PROGRESS = ("iter", "time")
_WORKERS = "workers"
# The place of the columns of what trials have used: behind the progress, or behind all others.
Costs = Literal["none", "first", "last"]
T = TypeVar("T")


class FittedTable(NamedTuple):
    """Headers and cells; `left_out` counts the parameters whose columns did not fit."""

    headers: list[str]
    cells: list[list[str]]
    left_out: int


def chosen(rows: Sequence[TrialRow], room: int) -> list[TrialRow]:
    """At most `room` of the rows, in order.

    Some lines are reserved for the best trials that have ended and for the newest failures.
    """
    if len(rows) <= room:
        return list(rows)
    best = [row for row in rows if row.status is Status.TERMINATED]
    failed = [row for row in rows if row.status is Status.ERROR]
    pending = [row for row in rows if row.status is Status.PENDING]
    others = [row for row in rows if not row.status.is_final and row.status is not Status.PENDING]
    return shares((others, best, failed, pending), (0, *lines_reserved(room), 0), room)


def table_of(
    summary: Summary, *, is_live: bool | None = None
) -> tuple[list[str], list[list[str]]]:
    """Headers and cells of the whole table, as `fitted_table` makes them."""
    table = fitted_table(summary, width=0, is_live=is_live)
    return table.headers, table.cells


def fitted_table(
    summary: Summary,
    *,
    width: int,
    rows: Sequence[TrialRow] | None = None,
    is_live: bool | None = None,
    costs: Costs = "none",
) -> FittedTable:
    """The table with as many columns as fit into `width`; all of them if that is 0.

    `rows` are the summary's by default. Unless the run `is_live` (by default: it is not done), no
    trial has a worker: one that had was running. `costs` says where the columns are of what trials
    have used, as far as it is known.
    """
    is_live = not summary.done if is_live is None else is_live
    shown = summary.rows if rows is None else rows
    by_name = not width or width >= _WIDE_COLUMNS
    goal, others = summary.metrics[:1], summary.metrics[1:]
    # As in a DataFrame of results; needed if a metric has the same name.
    params = [f"config/{name}" for name in summary.params]
    elastic = [_WORKERS] if any(row.most_workers for row in shown) else []
    on_nodes = [_NODE] if summary.nodes is not None else []
    used = {} if costs == "none" else _used(shown)
    early, late = (used, {}) if costs == "first" else ({}, used)
    first = (*_FIRST, *on_nodes, *_PROGRESS, *elastic, *early)
    names = [printable(name) for name in (*goal, *params, *others)]
    headers = [*first, *short_headers(names, _CELL_WIDTH, (*first, *late)), *late]
    cells = [
        [
            printable(row.name if by_name else row.trial_id),
            _status(row, is_live=is_live),
            *(printable(nodes_cell(row.nodes)) for _ in on_nodes),
            _iteration(row),
            duration(row.time_total_s) if row.iteration else "",
            *(f"{row.workers}/{row.most_workers}" for _ in elastic),
            *(cells[at] for cells in early.values()),
            *(format_cell(row.metrics.get(name), _CELL_WIDTH) for name in goal),
            *(param_cell(row.params, name, _CELL_WIDTH) for name in summary.params),
            *(format_cell(row.metrics.get(name), _CELL_WIDTH) for name in others),
            *(cells[at] for cells in late.values()),
        ]
        for at, row in enumerate(shown)
    ]
    fit = fitting(_widths(headers, cells), width)
    left_out = max(0, len(params) - max(0, fit - len(first) - len(goal)))
    return FittedTable(headers[:fit], [line[:fit] for line in cells], left_out)


def _used(rows: Sequence[TrialRow]) -> dict[str, list[str]]:
    """The columns of what the trials have used, without those that would be empty."""
    known = [row.usage for row in rows]
    columns = {
        "cpu": ["" if one is None else duration(one.cpu_s) for one in known],
        "mem": [size(one.memory_bytes) if one and one.memory_bytes else "" for one in known],
        "gpu": [
            "" if one is None or one.gpu_utilisation is None else f"{one.gpu_utilisation:.0%}"
            for one in known
        ],
        "gpu mem": [
            "" if one is None or one.gpu_memory_bytes is None else size(one.gpu_memory_bytes)
            for one in known
        ],
    }
    return {name: cells for name, cells in columns.items() if any(cells)}


def left_columns(headers: Sequence[str]) -> int:
    """The number of left-aligned columns of a table with these headers."""
    return _LEFT_COLUMNS + (headers[_LEFT_COLUMNS : _LEFT_COLUMNS + 1] == [_NODE])


def nodes_cell(nodes: Sequence[str]) -> str:
    """`a`, `a, b`, or `a +7` for many nodes."""
    listed = ", ".join(nodes)
    fits = len(nodes) < 2 or width_of(listed) <= _CELL_WIDTH
    return listed if fits else f"{nodes[0]} +{len(nodes) - 1}"


def _status(row: TrialRow, *, is_live: bool) -> str:
    unread = f", {row.unread:,} unread" if row.unread else ""
    fresh = f", confirms {row.confirms}" if row.confirms else ""
    marks = (f" ↻{row.retries}" if row.retries else "") + fresh + unread
    is_cut_off = not is_live and row.has_begun and not row.status.is_final
    return f"{state_word(row.status, 'interrupted' if is_cut_off else row.early)}{marks}"


def _iteration(row: TrialRow) -> str:
    if row.last is None or row.status.is_final:
        return str(row.iteration or "")
    return f"{row.iteration}/{row.last}"


def _widths(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(width_of, column)) for column in zip(headers, *cells, strict=True)]


def shares(groups: Sequence[Sequence[T]], reserved: Sequence[int], room: int) -> list[T]:
    """At most `room` items of all groups, in order.

    Earlier groups come first, but each group keeps as many lines as are `reserved` for it.
    """
    kept = [min(len(group), lines) for group, lines in zip(groups, reserved, strict=True)]
    free = max(0, room - sum(kept))
    counts = []
    for group, least in zip(groups, kept, strict=True):
        more = min(len(group) - least, free)
        free -= more
        counts.append(least + more)
    taken = chain.from_iterable(group[:count] for group, count in zip(groups, counts, strict=True))
    return list(taken)[:room]


def lines_reserved(room: int) -> tuple[int, int]:
    """The numbers of `room` lines reserved for the best trials and for the newest failures."""
    return min(5, room // 3), min(3, room // 4)


Span = tuple[str, str]
Line = tuple[Span, ...]

_STYLES = {
    Status.RUNNING: "cyan",
    Status.STARTING: "cyan dim",
    Status.STOPPING: "cyan dim",
    Status.PAUSED: "yellow",
    Status.PENDING: "dim",
    Status.TERMINATED: "green",
    Status.ERROR: "red",
}
_SMALLEST_TABLE = 3
_LONGEST_BAR = 40
_SHORTEST_BAR = 10


def picture(summary: Summary, *, width: int, height: int) -> list[Line]:
    """At most `height` lines, none wider than `width`: a header, the table and current notes.

    The table takes at most half of the height, so that the lines that scroll by above can be read.
    """
    notes = list(_notes(summary))
    room = max(_SMALLEST_TABLE, min(height // 2, height - len(notes) - 5))
    shown = chosen(summary.rows, room)
    table = fitted_table(summary, width=width, rows=shown)
    more = [hidden_text(summary, shown), left_out_text(table.left_out)]
    lines = [
        *_header(summary, width),
        *(table_lines(summary, shown, table) if shown else ()),
        *([((f"… {'; '.join(filter(None, more))}", "dim"),)] if any(more) else ()),
        *notes,
    ]
    return [cut_line(line, width) for line in lines[: max(1, height - 1)]]


def table_lines(summary: Summary, rows: Sequence[TrialRow], table: FittedTable) -> list[Line]:
    """The headers of the `table` and one line for each of the `rows`."""
    headers, cells, _ = table
    widths = _widths(headers, cells)
    best = summary.best.trial_id if summary.best else None
    right = range(left_columns(headers), len(headers))
    lines: list[Line] = [((joined(headers, widths, right), "bold dim"),)]
    for row, line in zip(rows, cells, strict=True):
        emphasis = "bold" if row.trial_id == best else ""
        first = filled(line[0], widths[0])
        state = filled(line[1], widths[1])
        colour = "yellow" if row.early else _STYLES[row.status]
        style = f"{emphasis} {colour}".strip()
        rest = joined(line[2:], widths[2:], range(right.start - 2, len(line)))
        lines.append(((f"{first}  ", emphasis), (state, style), (f"  {rest}", emphasis)))
    return lines


def cut_line(line: Line, width: int) -> Line:
    """The line, cut to `width` columns."""
    if sum(width_of(text) for text, _ in line) <= width:
        return line
    spans, left = [], width
    for text, style in line:
        part = cut(text, left)
        spans.append((part, style))
        left -= width_of(part)
        if part != text:
            break
    return tuple(spans)


def _header(summary: Summary, width: int) -> Iterator[Line]:
    time = time_text(summary)
    name = cut(summary.name, max(_SHORTEST_BAR, width - width_of(time) - 2))
    yield ((name, "bold"), ("  ", ""), (time, "cyan"))
    counts = counts_text(summary)
    length = min(_LONGEST_BAR, width - width_of(counts) - 8)
    if summary.share is None or (summary.total == 1 and not summary.share):
        yield ((counts, ""),)
    else:
        percent = (f" {int(100 * summary.share):3d}%  ", "bold")
        yield (*bar(summary.share, max(_SHORTEST_BAR, length)), percent, (counts, ""))


def bar(share: float, width: int) -> Line:
    """`━━━╸━━━`: the part that is done, in half columns, and the rest."""
    halves = int(2 * width * min(1.0, max(0.0, share)))
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    return ((done, "green"), ("━" * (width - len(done)), "bright_black"))


def _notes(summary: Summary) -> Iterator[Line]:
    """The lines below the table, each with its style."""
    late = summary.storage is not None and summary.storage.is_late
    notes = [
        (f"best  {best_text(summary)}" if summary.best else "", "green"),
        (summary.scheduler, "dim"),
        (summary.outlook, "dim"),
        *((line, "red") for line in failure_lines(summary, logs=False)),
        *((line, "yellow") for line in wait_lines(summary)),
        (storage_text(summary), "yellow" if late else "dim"),
        *((line, "dim") for line in node_lines(summary)),
        (f"stopping: {summary.ending}" if summary.ending and not summary.phase else "", "yellow"),
        (summary.phase, "dim"),
    ]
    return (((text, style),) for text, style in notes if text)
