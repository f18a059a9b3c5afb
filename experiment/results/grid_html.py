"""The results of an experiment as HTML, below the cell of a notebook. Reads only the records."""

from __future__ import annotations

from holdfast.experiment.progress.summarizer import summary_of
from holdfast.experiment.progress.summary import RunFacts
from holdfast.experiment.progress.trial_table import table_of
from holdfast.experiment.progress.wording import (
    best_text,
    counts_text,
    failure_lines,
    hidden_text,
)
from holdfast.experiment.results.outcome import Outcome
from holdfast.text.tables import RED, html_heading, html_line, html_table

_ROWS = 20


def grid_html(outcome: Outcome) -> str:
    """The trials of an experiment: their number, the best of them in a table, and failures."""
    place = outcome.location.public
    facts = RunFacts(
        name=outcome.location.path.rstrip("/").rpartition("/")[2],
        path=place,
        local_path=place if outcome.layout is None else str(outcome.layout.root),
    )
    summary = summary_of(
        list(outcome.trials.values()),
        facts,
        outcome.spec,
        max_rows=_ROWS,
    )
    parts = [
        html_heading(summary.name, counts_text(summary)),
        html_table(*table_of(summary, is_live=not outcome.is_over)) if summary.rows else "",
        html_line(hidden_text(summary)),
        html_line(f"best {best_text(summary)}" if summary.best else ""),
        *(html_line(line, RED) for line in failure_lines(summary)),
        html_line(place),
    ]
    return "\n".join(filter(None, parts))
