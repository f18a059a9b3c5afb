"""How experiments are told: a table that fits the terminal, and a few lines around it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.cli.saying import quoted, say
from holdfast.experiment.browse.catalog import Entry
from holdfast.experiment.browse.condition import Condition
from holdfast.experiment.browse.found import Found
from holdfast.experiment.browse.overview import failures
from holdfast.experiment.summarizer import summarize
from holdfast.experiment.summary import RunFacts
from holdfast.experiment.trial_table import table_of
from holdfast.experiment.wording import best_text, duration, hidden_text, short, size
from holdfast.trial.trial import Status

_STYLES = {
    Condition.LIVE: "cyan",
    Condition.FINISHED: "green",
    Condition.INTERRUPTED: "yellow",
    Condition.ERRORED: "red",
    Condition.UNREADABLE: "bold red",
}
_TRIAL_STYLES = {"TERMINATED": "green", "ERROR": "red", "RUNNING": "cyan", "PENDING": "dim"}
_WORDS = {
    Status.TERMINATED: "done",
    Status.ERROR: "failed",
    Status.RUNNING: "running",
    Status.STARTING: "starting",
    Status.STOPPING: "stopping",
    Status.PAUSED: "paused",
    Status.PENDING: "pending",
}
_SHOWN_CAUSES = 3
_INFERRED = 3


def terminal_width() -> int:
    """Columns of the terminal; 0, no limit, where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def show_catalog(place: str, entries: Sequence[Entry], *, now: float) -> None:
    """`holdfast ls`."""
    if not entries:
        say(f"There is no experiment in {place}.")
        return
    header = ["NAME", "STATE", "TRIALS", "BEST", "AGE", "SIZE"]
    cells = [_cells(entry, now) for entry in entries]
    styles = [_STYLES[entry.state] for entry in entries]
    for line, style in zip(
        aligned([header, *cells], terminal_width()), ["bold", *styles], strict=True
    ):
        say(line, style)
    for entry in entries:
        if entry.state is Condition.UNREADABLE:
            say(f"{entry.name}: {entry.problem}")
            say(f"  holdfast doctor {quoted(entry.path)}   says more")


def _cells(entry: Entry, now: float) -> list[str]:
    best = entry.best
    return [
        entry.name,
        entry.state.value,
        counts_text(entry.trials),
        "" if best is None else f"{best.metric}={short(best.value)} ({best.trial_id})",
        "" if entry.began_at is None else duration(max(0.0, now - entry.began_at)),
        "" if entry.size_bytes is None else size(entry.size_bytes),
    ]


def counts_text(counts: Mapping[str, int]) -> str:
    """`7 done, 1 failed, 2 running`."""
    told = {status: counts[status.value] for status in _WORDS if counts.get(status.value)}
    return ", ".join(f"{count} {_WORDS[status]}" for status, count in told.items()) or "none yet"


def aligned(lines: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Columns beside each other. In a terminal that is too narrow for all, the last ones go, and
    what is left of a line that is still too long is cut."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while width and len(widths) > 2 and sum(widths) + 2 * (len(widths) - 1) > width:
        widths.pop()
    for line in lines:
        padded = (cell.ljust(size) for cell, size in zip(line, widths, strict=False))
        text = "  ".join(padded).rstrip()
        yield f"{text[: width - 1]}…" if width and len(text) > width else text


def show_overview(shown: Mapping[str, Any], found: Found, *, now: float, most: int | None) -> None:
    """`holdfast show`; `most` trials in the table, None for all."""
    state = Condition(shown["state"])
    say(f"{shown['name']}: {state}{_because(shown, now)}", _STYLES[state])
    say(f"  {counts_text(shown['counts'])}; {shown['trainable']}, began {_when(shown, now)}")
    rows = len(found.machine.trials) if most is None else most
    summary = summarize(
        found.machine,
        facts=RunFacts(name=shown["name"], path=shown["path"], local_path=shown["path"]),
        now=found.machine.now,
        max_rows=rows,
        infer_limit=_INFERRED,
    )
    if summary.best is not None:
        say(f"  best {best_text(summary)}")
    for notice in shown["notices"]:
        say(f"  {notice}", "yellow")
    headers, cells, trials = table_of(summary, width=terminal_width())
    styles = [_TRIAL_STYLES.get(trial.status.value, "") for trial in trials]
    if trials:
        say("")
        lines = aligned([headers, *cells], terminal_width())
        for line, style in zip(lines, ["bold", *styles], strict=True):
            say(line, style)
    if hidden := hidden_text(summary.hidden):
        say(f"... {hidden} (-n 0 shows all)")
    _show_failures(found)
    _show_next(shown, state)


def _because(shown: Mapping[str, Any], now: float) -> str:
    if shown["holder"]:
        return f", {shown['holder']} runs it"
    if shown["ending"]:
        return f" ({shown['ending']})"
    if shown["heard_at"] is None:
        return ""
    return f", its storage heard of it {duration(max(0.0, now - shown['heard_at']))} ago"


def _when(shown: Mapping[str, Any], now: float) -> str:
    began = shown["began_at"]
    local = datetime.fromtimestamp(began).astimezone().strftime("%Y-%m-%d %H:%M")
    restores = f", restored {shown['restores']} times" if shown["restores"] else ""
    ago = duration(max(0.0, now - began))
    return f"{local} ({ago} ago), ran {duration(shown['active_s'])}{restores}"


def _show_failures(found: Found) -> None:
    causes = failures(found)
    if causes:
        say("")
    for first, count in causes[:_SHOWN_CAUSES]:
        error = first["error"]
        alike = f" (and {count - 1} more alike)" if count > 1 else ""
        where = f" at {error['where']}" if error["where"] else ""
        say(f"{first['trial_id']} failed{where}: {short(error['headline'], 300)}{alike}", "red")
        for place in (error["error_file"], *error["logs"]):
            say(f"  {place}")
    if len(causes) > _SHOWN_CAUSES:
        say(f"and {len(causes) - _SHOWN_CAUSES} other causes (--json has them all)")


def _show_next(shown: Mapping[str, Any], state: Condition) -> None:
    """What can be done about it."""
    path = quoted(shown["path"])
    if state is Condition.INTERRUPTED:
        say(f"  holdfast resume {path}   goes on with it")
    elif state is Condition.ERRORED:
        say(f"  holdfast resume --restart-errored {path}   begins the failed trials again")
