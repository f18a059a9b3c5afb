"""Lays a run out as lines for a terminal of a given size; a line is styled texts. Pure: no I/O.

Styles are words that rich understands (`bold red`); the live view draws them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.experiment.progress.node_wording import node_lines, wait_lines
from holdfast.experiment.progress.summary import Summary, TrialRow
from holdfast.experiment.progress.text_width import cut, filled, width_of
from holdfast.experiment.progress.trial_table import (
    FittedTable,
    chosen,
    fitted_table,
    left_columns,
)
from holdfast.experiment.progress.wording import (
    best_text,
    counts_text,
    failure_lines,
    hidden_text,
    left_out_text,
    storage_text,
    time_text,
)
from holdfast.trial.trial import Status

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
    widths = [max(map(width_of, column)) for column in zip(headers, *cells, strict=True)]
    best = summary.best.trial_id if summary.best else None
    left = left_columns(headers)
    lines: list[Line] = [((_joined(headers, widths, left), "bold dim"),)]
    for row, line in zip(rows, cells, strict=True):
        emphasis = "bold" if row.trial_id == best else ""
        first = filled(line[0], widths[0])
        state = filled(line[1], widths[1])
        colour = "yellow" if row.early else _STYLES[row.status]
        style = f"{emphasis} {colour}".strip()
        rest = _joined(line[2:], widths[2:], left - 2)
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
        *((line, "red") for line in failure_lines(summary, logs=False)),
        *((line, "yellow") for line in wait_lines(summary)),
        (storage_text(summary), "yellow" if late else "dim"),
        *((line, "dim") for line in node_lines(summary)),
        (f"stopping: {summary.ending}" if summary.ending and not summary.phase else "", "yellow"),
        (summary.phase, "dim"),
    ]
    return (((text, style),) for text, style in notes if text)


def _joined(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    """Cells side by side with two spaces between them, right-aligned except for the first
    `left`."""
    return "  ".join(
        filled(cell, width, right=at >= left)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()
