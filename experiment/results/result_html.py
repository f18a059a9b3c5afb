"""The result of a trial as HTML, below the cell of a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.experiment.results.ranking import AUTOMATIC
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

_ROWS = 20
_VALUE_CHARS = 200


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
    shown = [(name, format_value(value, _VALUE_CHARS)) for name, value in flat.items()][:_ROWS]
    if not shown:
        return ""
    more = len(flat) - len(shown)
    rest = html_line(f"... {more} more" if more else "")
    return "\n".join(filter(None, [html_table([kind, "value"], shown), rest]))
