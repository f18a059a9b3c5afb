"""Results as HTML, below the cell of a notebook: of an experiment, or of one trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.experiment.progress.summary import Summary
from holdfast.experiment.progress.trial_table import table_of
from holdfast.experiment.progress.wording import best_text, counts_text, failure_lines, hidden_text
from holdfast.experiment.records.rows import AUTOMATIC
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.text.tables import (
    RED,
    html_facts,
    html_heading,
    html_line,
    html_table,
)
from holdfast.text.values import format_value
from holdfast.trial.errors import TrialError
from holdfast.trial.values import flatten, readable

ROWS = 20
_VALUE_CHARS = 200


def grid_html(summary: Summary, place: str, *, is_live: bool) -> str:
    """The trials of an experiment: their number, the best of them in a table, and failures."""
    parts = [
        html_heading(summary.name, counts_text(summary)),
        html_table(*table_of(summary, is_live=is_live)) if summary.rows else "",
        html_line(hidden_text(summary)),
        html_line(f"best {best_text(summary)}" if summary.best else ""),
        *(html_line(line, RED) for line in failure_lines(summary)),
        html_line(place),
    ]
    return "\n".join(filter(None, parts))


def result_html(
    path: str,
    row: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    checkpoint: Checkpoint | None,
    error: TrialError | None,
    stop_reason: str = "",
) -> str:
    """A trial: why it stopped, its metrics, config, checkpoint, error and path."""
    metrics = {name: value for name, value in row.items() if name not in AUTOMATIC}
    parts = [
        html_heading(
            str(row.get("trial_id") or path.rstrip("/").rpartition("/")[2]),
            ", ".join(filter(None, [_iteration(row), stop_reason])),
        ),
        html_line("" if error is None else f"failed: {error.failure.headline}", RED),
        _values("metric", metrics),
        _values("parameter", config),
        html_facts(
            (
                ("checkpoint", "" if checkpoint is None else checkpoint.location.public),
                ("path", path),
            )
        ),
    ]
    return "\n".join(filter(None, parts))


def _iteration(row: Mapping[str, Any]) -> str:
    iteration = row.get("training_iteration")
    return f"iteration {iteration}" if iteration else "no reports"


def _values(kind: str, values: Mapping[str, Any]) -> str:
    """A table of the first values; empty if there are none."""
    flat = flatten(readable(values))
    shown = [(name, format_value(value, _VALUE_CHARS)) for name, value in flat.items()][:ROWS]
    if not shown:
        return ""
    more = len(flat) - len(shown)
    rest = html_line(f"... {more} more" if more else "")
    return "\n".join(filter(None, [html_table([kind, "value"], shown), rest]))
