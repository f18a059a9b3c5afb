"""Prints experiments: a table that fits the terminal, and a few lines around it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.cli.saying import quoted, say
from holdfast.experiment.browse.catalog import CatalogEntry
from holdfast.experiment.browse.condition import Condition
from holdfast.experiment.browse.found import LocatedExperiment
from holdfast.experiment.browse.overview import failures
from holdfast.experiment.progress.summarizer import summarize
from holdfast.experiment.progress.summary import RunFacts
from holdfast.experiment.progress.trial_table import table_of
from holdfast.experiment.progress.wording import (
    best_text,
    duration,
    hidden_text,
    short,
    size,
    states_text,
)
from holdfast.experiment.results.trial_count import has_rest
from holdfast.names import printable
from holdfast.scheduler.machine import Machine
from holdfast.trial.trial import Status

_STYLES = {
    Condition.LIVE: "cyan",
    Condition.FINISHED: "green",
    Condition.INTERRUPTED: "yellow",
    Condition.ERRORED: "red",
    Condition.NEVER_BEGUN: "dim",
    Condition.UNREADABLE: "bold red",
}
_TRIAL_STYLES = {"TERMINATED": "green", "ERROR": "red", "RUNNING": "cyan", "PENDING": "dim"}
_SHOWN_CAUSES = 3
_INFERRED = 3


def terminal_width() -> int:
    """Columns of the terminal; 0 (no limit) if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def show_catalog(place: str, entries: Sequence[CatalogEntry], *, now: float) -> None:
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
        if entry.run != 1:
            say(f"{entry.name}: there are earlier runs of this name:")
            say(f"  holdfast show --run 1 {quoted(entry.path)}")
        for notice in entry.notices:
            say(f"{entry.name}: {notice}", "yellow")
        if entry.state in (Condition.UNREADABLE, Condition.NEVER_BEGUN):
            say(f"{entry.name}: {entry.problem}")
        if entry.state is Condition.UNREADABLE:
            say(f"  holdfast doctor {quoted(entry.path)}   says more")


def _cells(entry: CatalogEntry, now: float) -> list[str]:
    best = entry.best
    return [
        printable(entry.name),
        entry.state.value,
        _states(entry.trials, entry.not_created, entry.state),
        "" if best is None else f"{best.metric}={short(best.value)} ({best.trial_id})",
        "" if entry.began_at is None else duration(max(0.0, now - entry.began_at)),
        "" if entry.size_bytes is None else size(entry.size_bytes),
    ]


def _states(counts: Mapping[str, int], not_created: int | None, state: Condition) -> str:
    """`7 finished, 1 failed, 2 running, 3 not created yet`; `2 interrupted` if no process runs
    the experiment."""
    known = {Status(name): count for name, count in counts.items()}
    ended = state in (Condition.FINISHED, Condition.ERRORED)
    is_live = state is Condition.LIVE
    text = states_text(known, not_created or 0, ended=ended, is_live=is_live)
    return text or "no trials yet"


def aligned(lines: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Aligned columns. A terminal that is too narrow loses the last ones, and a line that is still
    too long is cut."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while width and len(widths) > 2 and sum(widths) + 2 * (len(widths) - 1) > width:
        widths.pop()
    for line in lines:
        padded = (cell.ljust(size) for cell, size in zip(line, widths, strict=False))
        text = "  ".join(padded).rstrip()
        yield f"{text[: width - 1]}…" if width and len(text) > width else text


def show_overview(
    shown: Mapping[str, Any], found: LocatedExperiment, *, now: float, most: int | None
) -> None:
    """`holdfast show`; `most` trials in the table, None for all."""
    state = Condition(shown["state"])
    say(f"{shown['name']}: {state}{_because(shown, now)}", _STYLES[state])
    states = _states(shown["counts"], shown["not_created"], state)
    say(f"  {states}; {shown['trainable']}, began {_when(shown, now)}")
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
    if text := _other_runs(found):
        say(f"  {text}")
    for notice in shown["notices"]:
        say(f"  {notice}", "yellow")
    is_live = state is Condition.LIVE
    headers, cells, trials = table_of(summary, width=terminal_width(), is_live=is_live)
    styles = [_TRIAL_STYLES.get(trial.status.value, "") for trial in trials]
    if trials:
        say("")
        lines = aligned([headers, *cells], terminal_width())
        for line, style in zip(lines, ["bold", *styles], strict=True):
            say(line, style)
    if hidden := hidden_text(summary.hidden):
        say(f"... {hidden} (-n 0 shows all)")
    _show_failures(found)
    if not found.read.is_followed:  # only the newest can be resumed
        _show_next(shown, state, found.machine)


def _other_runs(found: LocatedExperiment) -> str:
    """The number of this run, and how to see the others of this name; "" for the only one."""
    before, path = found.read.runs_before, quoted(found.shown)
    number = "" if before is None else f"run {before + 1} of this name"
    if found.read.is_followed:
        return f"{number}, not the newest: holdfast show {path}"
    if before == 0:
        return ""
    earlier = "run 1 is" if before == 1 else "earlier runs are"
    return "; ".join(filter(None, [number, f"{earlier} kept: holdfast show --run 1 {path}"]))


def _because(shown: Mapping[str, Any], now: float) -> str:
    if shown["holder"]:
        return f", {shown['holder']} runs it"
    if shown["ending"] and shown["ending"] != shown["state"]:
        return f" ({shown['ending']})"
    if shown["heard_at"] is None:
        return ""
    return f", last published to storage {duration(max(0.0, now - shown['heard_at']))} ago"


def _when(shown: Mapping[str, Any], now: float) -> str:
    began = shown["began_at"]
    local = datetime.fromtimestamp(began).astimezone().strftime("%Y-%m-%d %H:%M")
    restores = _RESTORES.get(shown["restores"], f", restored {shown['restores']} times")
    ago = duration(max(0.0, now - began))
    return f"{local} ({ago} ago), ran {duration(shown['active_s'])}{restores}"


_RESTORES = {0: "", 1: ", restored once"}


def _show_failures(found: LocatedExperiment) -> None:
    causes = failures(found)
    if causes:
        say("")
    for first, count in causes[:_SHOWN_CAUSES]:
        error = first["error"]
        trials = "1 trial" if count == 2 else f"{count - 1} trials"
        alike = f" (and {trials} alike)" if count > 1 else ""
        where = f" at {error['where']}" if error["where"] else ""
        say(f"{first['trial_id']} failed{where}: {short(error['headline'], 300)}{alike}", "red")
        for place in (error["error_file"], *error["logs"]):
            say(f"  {place}{_emptiness(place)}")
    if len(causes) > _SHOWN_CAUSES:
        say(f"and {len(causes) - _SHOWN_CAUSES} other causes (--json has them all)")


def _emptiness(file: str) -> str:
    """A mark for an empty file; "" also for one that is not here."""
    try:
        return " (empty)" if os.stat(file).st_size == 0 else ""
    except (OSError, ValueError):
        return ""


def _show_next(shown: Mapping[str, Any], state: Condition, machine: Machine) -> None:
    """The commands that resume or restart it."""
    path = quoted(shown["path"])
    resumes = state is Condition.INTERRUPTED or (state is Condition.ERRORED and has_rest(machine))
    if resumes:
        say(f"  holdfast resume {path}   finishes the rest")
    failed = [trial for trial in machine.trials.values() if trial.status is Status.ERROR]
    if failed and state is not Condition.LIVE:
        too = "finishes the rest, and " * resumes
        if any(trial.checkpoints for trial in failed):
            how, does = "--resume-errored", "resumes the failed trials from their checkpoints"
        else:
            how, does = "--restart-errored", "restarts the failed trials"
        say(f"  holdfast resume {how} {path}   {too}{does}")
