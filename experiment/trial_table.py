"""The table of trials: which columns there are, what stands in them, and how many fit."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.experiment.headers import short_headers
from holdfast.experiment.summary import Summary, TrialRow
from holdfast.experiment.wording import duration, short

_WIDE_COLUMNS = 100
_CELL_WIDTH = 16
_FIRST = ("trial", "status", "iter", "time")


def table_of(
    summary: Summary, *, width: int = 0, max_rows: int | None = None
) -> tuple[list[str], list[list[str]], list[TrialRow]]:
    """Headers, cells and trials of the table; with a `width`, only as many columns as fit."""
    rows = list(summary.rows[:max_rows])
    by_name = not width or width >= _WIDE_COLUMNS
    goal, others = summary.metrics[:1], summary.metrics[1:]
    # As in a DataFrame of results; shown where a metric has the same name.
    params = [f"config/{name}" for name in summary.params]
    names = [*goal, *params, *others]
    headers = [*_FIRST, *short_headers(names, _CELL_WIDTH, _FIRST)]
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


def _cell(value: object) -> str:
    return "" if value is None else short(value, _CELL_WIDTH)


def _fitting(headers: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> int:
    """How many of the columns fit, two spaces between them."""
    used = -2
    for at, column in enumerate(zip(headers, *cells, strict=True)):
        used += 2 + max(map(len, column))
        if used > width and at > 1:
            return at
    return len(headers)
