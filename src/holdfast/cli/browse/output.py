"""Prints experiments: a table that fits the terminal, and a few lines around it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat

from holdfast.cli.printing import quoted, say
from holdfast.experiment.folder.layout import SET_ASIDE
from holdfast.experiment.folder.shell import holdfast_command
from holdfast.experiment.progress.scheduler_facts import (
    RungCount,
    TakeoverFact,
    rung_counts,
    takeover_facts,
)
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.progress.summary import RunFacts
from holdfast.experiment.progress.trial_table import fitted_table
from holdfast.experiment.progress.wording import (
    best_text,
    hidden_text,
    left_out_text,
    node_count,
    retry_way,
)
from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.experiment.user_objects.tuner_file import TunerFile, recorded_code
from holdfast.names import printable
from holdfast.results.catalog import CatalogEntry
from holdfast.results.overview import (
    RUN_ENDED,
    ListedNode,
    NodeList,
    NodeState,
    ending_of,
    failure_causes,
    usage_of,
)
from holdfast.results.ranking import front_text, goals_text
from holdfast.results.result_grid import front_of
from holdfast.scheduler.machine import Machine
from holdfast.text.trials import changes_text, number, short_name, unread_text
from holdfast.text.values import (
    aligned,
    counted,
    duration,
    format_cell,
    format_value,
    size,
    width_of,
)
from holdfast.trial.resources import Usage
from holdfast.trial.trial import Status

STATE_STYLES = {
    Condition.LIVE: "cyan",
    Condition.FINISHED: "green",
    Condition.INTERRUPTED: "yellow",
    Condition.ERRORED: "red",
    Condition.NEVER_BEGUN: "dim",
    Condition.UNREADABLE: "bold red",
}
_TRIAL_STYLES = {"TERMINATED": "green", "ERROR": "red", "RUNNING": "cyan", "PENDING": "dim"}
_RESTORES = {0: "", 1: ", restored once"}
_SHOWN_CAUSES = 3
_SHOWN_NOTES = 10
_SHOWN_RESUMES = 3
_SHOWN_PLACES = 3
_INFERRED = 3
_SHOWN_TAKEOVERS = 10


def show_catalog(place: str, entries: Sequence[CatalogEntry], *, now: float) -> None:
    """`holdfast ls`."""
    if not entries:
        say(f"There is no experiment in {place}.")
        return
    show_entries(entries, now=now)
    for entry in entries:
        if entry.run != 1:
            before = None if entry.run is None else entry.run - 1
            say(f"{entry.name}: {_kept_runs(before)}:")
            say(f"  holdfast show --run {before or 1} {quoted(entry.path)}")
        for notice in entry.notices:
            say(f"{entry.name}: {notice}", "yellow")
        if entry.state in (Condition.UNREADABLE, Condition.NEVER_BEGUN):
            say(f"{entry.name}: {entry.problem}")
        if entry.state is Condition.UNREADABLE:
            say(f"  holdfast doctor {quoted(entry.path)}   # says more")
    resumable = [
        entry
        for entry in entries
        if entry.state is Condition.INTERRUPTED and SET_ASIDE not in entry.name
    ]
    for entry in resumable[-_SHOWN_RESUMES:]:
        path = entry.storage or entry.path
        say(f"  holdfast resume {quoted(path)}   # finishes the rest of {entry.name}")


def show_other_places(listed: str, lately: Sequence[str]) -> None:
    """The places that were used lately, for a listing of the default one."""
    for place in [place for place in lately if place != listed][:_SHOWN_PLACES]:
        say(f"  holdfast ls {quoted(place)}   # used lately, too")


def show_entries(entries: Sequence[CatalogEntry], *, now: float) -> None:
    """The table of experiments. In a narrow terminal the trials are shorter, then columns are left
    out, with a line that names them."""
    columns = {name: [name, *(cell(one, now) for one in entries)] for name, cell in _CELLS.items()}
    if not any(entry.tags for entry in entries):
        del columns["TAGS"]
    width = terminal_width()
    if width and _width_of(columns) > width:
        columns["TRIALS"] = ["TRIALS", *map(_short_trials, entries)]
    hidden = []
    for name in _DROPPED_FIRST:
        if width and name in columns and _width_of(columns) > width:
            del columns[name]
            hidden.append(name)
    lines = list(zip(*columns.values(), strict=True))
    print_table(lines, [STATE_STYLES[entry.state] for entry in entries])
    if hidden:
        verb = "does" if len(hidden) == 1 else "do"
        say(f"... {', '.join(hidden)} {verb} not fit here: widen the terminal, or add --json")


def _width_of(columns: Mapping[str, Sequence[str]]) -> int:
    return sum(max(map(width_of, cells)) + 2 for cells in columns.values()) - 2


def _short_trials(entry: CatalogEntry) -> str:
    """`22 of 24, 1 failed`."""
    ended = {Status(name): count for name, count in entry.standing.counts.items()}
    done = sum(count for status, count in ended.items() if status.is_final)
    total = sum(ended.values()) + (entry.standing.not_created or 0)
    failed = ended.get(Status.ERROR, 0)
    return f"{done} of {total}" + (f", {failed} failed" if failed else "")


def _best(entry: CatalogEntry) -> str:
    if (best := entry.best) is not None:
        return f"{best.metric}={format_value(best.value)} ({best.trial_id})"
    front = len(entry.pareto_front)
    return front_text(front) if front else ""


def _age(entry: CatalogEntry, now: float) -> str:
    return "" if entry.began_at is None else duration(max(0.0, now - entry.began_at))


_CELLS: Mapping[str, Callable[[CatalogEntry, float], str]] = {
    "NAME": lambda entry, now: printable(entry.name),
    "STATE": lambda entry, now: entry.state.value,
    "TRIALS": lambda entry, now: entry.standing.text,
    "BEST": lambda entry, now: _best(entry),
    "AGE": _age,
    "SIZE": lambda entry, now: "" if entry.size_bytes is None else size(entry.size_bytes),
    "TAGS": lambda entry, now: _tags(entry.tags),
}
_DROPPED_FIRST = ("TAGS", "SIZE", "AGE", "TRIALS", "BEST")


def _tags(tags: Mapping[str, str]) -> str:
    return printable(" ".join(f"{name}={value}" for name, value in tags.items()))


def show_overview(
    experiment: ExperimentView, *, now: float, most: int | None, costs: bool = False
) -> None:
    """`holdfast show`; `most` trials in the table, None for all. `costs`: what trials have used
    stands before their metrics, and not only where there is room."""
    machine, spec, standing = experiment.machine, experiment.machine.spec, experiment.standing(now)
    name, state = experiment.name, standing.state
    say(f"{name}: {state}{_because(experiment, state, now)}", STATE_STYLES[state])
    say(f"  {standing.text}; {spec.trainable}, began {_when(experiment, now)}")
    if tags := spec.options.get("tags", {}):
        say(f"  tags {_tags(tags)}")
    if choice := spec.options.get("choice", ""):
        say(f"  {printable(choice)}")
    rows = len(machine.trials) if most is None else most
    summarizer = Summarizer(machine, max_rows=rows, infer_limit=_INFERRED)
    summary = summarizer.summarize(
        facts=RunFacts(name=name, path=experiment.shown, local_path=experiment.shown),
        now=machine.now,
    )
    if summary.best is not None:
        say(f"  best {best_text(summary)}")
    if summary.outlook:
        say(f"  {summary.outlook}")
    if spec.goals:
        say(f"  goals {goals_text(spec.goals)}")
        front = front_text(len(front_of(experiment)))
        say(f"  {front}: holdfast best {quoted(experiment.shown)}")
    if (usage := usage_of(machine)) is not None:
        say(f"  {_used_text(usage)}")
    if text := _other_runs(experiment):
        say(f"  {text}")
    for notice in experiment.notices:
        say(f"  {notice}", "yellow")
    table = fitted_table(
        summary,
        width=terminal_width(),
        is_live=standing.is_live,
        costs="first" if costs else "last",
    )
    styles = [_TRIAL_STYLES.get(trial.status.value, "") for trial in summary.rows]
    if summary.rows:
        say("")
        print_table([table.headers, *table.cells], styles)
    if left_out := left_out_text(table.left_out):
        say(f"... {left_out}: widen the terminal, or add --json")
    if hidden := hidden_text(summary):
        say(f"... {hidden} (-n 0 shows all)")
    if unread := unread_text(summary.unread):
        say(unread, "yellow")
    _show_scheduler(machine)
    _show_notes(machine)
    _show_failures(experiment)
    if not experiment.is_followed:  # only the newest can be resumed
        _show_next(experiment, state)


def _used_text(usage: Usage) -> str:
    """`used 3h 05m of CPU time and 1h 30m of GPUs; at most 2.1 GB of memory in one attempt`."""
    gpus = f" and {duration(usage.gpu_s)} of GPUs" if usage.gpu_s else ""
    used = f"used {duration(usage.cpu_s)} of CPU time{gpus}"
    if not usage.memory_bytes:
        return used
    return f"{used}; at most {size(usage.memory_bytes)} of memory in one attempt"


def _other_runs(experiment: ExperimentView) -> str:
    """The number of this run, and how to see the others of this name; "" for the only one."""
    before, path = experiment.runs_before, quoted(experiment.shown)
    number = "" if before is None else f"run {before + 1} of this name"
    if experiment.is_followed:
        return f"{number}, not the newest: holdfast show {path}"
    if before == 0:
        return ""
    kept = f"{_kept_runs(before)}: holdfast show --run {before or 1} {path}"
    return "; ".join(filter(None, [number, kept]))


def _kept_runs(before: int | None) -> str:
    if before is None:
        return "earlier runs are kept"
    return "run 1 is kept" if before == 1 else f"runs 1 to {before} are kept"


def _because(experiment: ExperimentView, state: Condition, now: float) -> str:
    ending, heard_at = ending_of(experiment.machine), experiment.heard_at
    if experiment.holder:
        return f", {experiment.holder} runs it"
    if ending and ending != state:
        return f" ({ending})"
    if heard_at is None:
        return ""
    return f", last published to storage {duration(max(0.0, now - heard_at))} ago"


def _when(experiment: ExperimentView, now: float) -> str:
    began, machine = experiment.began_at, experiment.machine
    local = datetime.fromtimestamp(began).astimezone().strftime("%Y-%m-%d %H:%M")
    restores = _RESTORES.get(machine.epoch - 1, f", restored {machine.epoch - 1} times")
    ago = duration(max(0.0, now - began))
    trials = machine.trials.values()
    if len(trials) == 1 and (begun := max(trial.resumed_from for trial in trials)):
        restores += f", the last time from iteration {begun}"
    return f"{local} ({ago} ago), ran {duration(machine.active_s)}{restores}"


def _show_notes(machine: Machine) -> None:
    noted = [trial for trial in machine.trials.values() if trial.note]
    if noted:
        say("")
    for trial in noted[:_SHOWN_NOTES]:
        say(f"note on {trial.trial_id}: {format_value(trial.note, 300)}")
    if len(noted) > _SHOWN_NOTES:
        others = counted(len(noted) - _SHOWN_NOTES, "other note", "other notes")
        say(f"and {others} (--json has them all)")


def _show_failures(experiment: ExperimentView) -> None:
    causes = failure_causes(experiment)
    if causes:
        say("")
    for cause in causes[:_SHOWN_CAUSES]:
        failure = cause.failure
        others = "1 more trial" if cause.trials == 2 else f"{cause.trials - 1} more trials"
        alike = f" (and {others})" if cause.trials > 1 else ""
        node = f" {failure.on_node}" if failure.on_node else ""
        where = f"{node} at {failure.where}" if failure.where else node
        headline = format_value(failure.headline, 300)
        say(f"{cause.trial_id} failed{where}: {headline}{alike}", "red")
        for file in (failure.error_file, *failure.logs):
            mark = _empty_mark(file)
            if mark and file == failure.error_file:  # the disk was full
                repair = holdfast_command("doctor", "repair", experiment.shown)
                mark = f" (empty; {repair} writes it)"
            say(f"  {file}{mark}")
    if len(causes) > _SHOWN_CAUSES:
        others = counted(len(causes) - _SHOWN_CAUSES, "other cause", "other causes")
        say(f"and {others} (--json has them all)")


def _empty_mark(file: str) -> str:
    """A mark for an empty file; "" also for one that is not here."""
    try:
        return " (empty)" if os.stat(file).st_size == 0 else ""
    except (OSError, ValueError):
        return ""


def _show_next(experiment: ExperimentView, state: Condition) -> None:
    """The commands that resume or restart it."""
    path, machine = quoted(experiment.storage or experiment.shown), experiment.machine
    resumes = state is Condition.INTERRUPTED or (state is Condition.ERRORED and machine.has_rest)
    if resumes:
        say(f"  holdfast resume {path}   # finishes the rest")
    failed = [trial for trial in machine.trials.values() if trial.status is Status.ERROR]
    if failed and state is not Condition.LIVE:
        too = "finishes the rest, and " * resumes
        way = retry_way(failed)
        does = "restarts the failed trials"
        if way == "resume":
            does = "resumes the failed trials from their checkpoints"
        code = _script(experiment)
        say(f"  holdfast resume --{way}-errored {code}{path}   # {too}{does}")


def _script(experiment: ExperimentView) -> str:
    """The option that takes the trainable from the script, if the script is here; else ""."""
    if experiment.layout is None:
        return ""
    recorded = recorded_code(TunerFile(experiment.layout.tuner, trusted=False))
    if not (name := printable(recorded.get("script", ""))):
        return ""
    folders = ["", *printable(recorded.get("modules", "")).split(os.pathsep)]
    paths = [os.path.abspath(os.path.join(folder, name)) for folder in folders]
    there = [path for path in paths if os.path.exists(path.rpartition(":")[0])]
    return f"--trainable {quoted(there[0])} " if there else ""


def print_table(lines: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """`lines` are the header, and the rows with these `styles`."""
    every = chain(["bold"], styles, repeat(""))
    for line, style in zip(aligned(lines, terminal_width()), every, strict=False):
        say(line, style)


def terminal_width() -> int:
    """Columns of the terminal; 0 (no limit) if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _show_scheduler(machine: Machine) -> None:
    """Print the rungs, or the newest takeovers; nothing if there are none."""
    known, spec = list(machine.trials.values()), machine.spec
    name = short_name(spec.scheduler)
    if rungs := rung_counts(known):
        say("")
        by = f", by {spec.metric}" if spec.metric else ""
        say(f"{name}: the rungs{by}")
        print_table(_rung_lines(rungs))
    if takeovers := takeover_facts(known):
        say("")
        shown = takeovers[-_SHOWN_TAKEOVERS:]
        more = f", the last {len(shown)} (--json has all)" * (len(shown) < len(takeovers))
        say(f"{name}: {counted(len(takeovers), 'takeover', 'takeovers')}{more}")
        print_table(_takeover_lines(shown))


def _rung_lines(rungs: Sequence[RungCount]) -> list[list[str]]:
    """The header and a line for each rung; columns that say nothing are left out."""
    brackets = len({rung.bracket for rung in rungs}) > 1
    waits = any(rung.waiting for rung in rungs)
    judged = any(rung.cutoff is not None for rung in rungs)
    lines = [["BRACKET", "RUNG", "REACHED", "PROMOTED", "STOPPED", "WAITING", "CUTOFF"]]
    for rung in rungs:
        counts = (rung.reached, rung.promoted, rung.stopped, rung.waiting)
        places = [str(rung.bracket), f"{rung.milestone:g}"]
        lines.append([*places, *map(str, counts), format_cell(rung.cutoff)])
    kept = (brackets, True, True, True, True, waits, judged)
    return [[cell for cell, is_kept in zip(line, kept, strict=True) if is_kept] for line in lines]


def _takeover_lines(takeovers: Sequence[TakeoverFact]) -> list[list[str]]:
    """The header and a line for each takeover."""
    lines = [["TRIAL", "AT", "CONTINUES", "FROM", "CHANGES"]]
    for one in takeovers:
        source = [number(one.source), str(one.source_iteration)]
        changes = changes_text(one.changes)
        lines.append([number(one.trial_id), str(one.iteration), *source, changes])
    return lines


_HEADER = ("NODE", "STATE", "HOLDS", "TRIALS", "JOINED", "HEARD", "FREE DISK", "HOST", "ADDRESS")
_NODE_STYLES = {NodeState.HERE: "", NodeState.LEAVING: "yellow", NodeState.LEFT: "dim"}
_SHOWN_LEFT = 10


def show_nodes(listed: NodeList, *, now: float, shows_all: bool) -> None:
    """`holdfast nodes`; `shows_all`: also those that left before the last restore."""
    runs = f", {listed.holder} runs it" if listed.holder else ""
    say(f"{listed.name}: {listed.state}{runs}", STATE_STYLES[listed.state])
    if listed.is_cluster:
        here = sum(node.state is NodeState.HERE for node in listed.here)
        say(f"  {node_count(here, listed.most)}")
        if listed.waiting:
            say(f"  {printable(listed.waiting)}")
    else:
        say("  all its trials run on one machine: it has no nodes")
    left = listed.left if shows_all else _newest_left(listed)
    shown = [*listed.here, *left]
    if shown:
        cells = [_cells(node, now) for node in shown]
        print_table([_HEADER, *cells], [_NODE_STYLES[node.state] for node in shown])
    for text in _causes(shown, now):
        say(text)
    if (more := len(listed.left) - len(left)) > 0:
        say(f"... {more:,} more {'has' if more == 1 else 'have'} left (--all shows them)")


def _newest_left(listed: NodeList) -> list[ListedNode]:
    """Some of those that have left since the last restore."""
    return [node for node in listed.left if not node.is_earlier][-_SHOWN_LEFT:]


def _cells(node: ListedNode, now: float) -> list[str]:
    free = node.disk_free_bytes
    return [
        printable(node.name),
        node.state.value,
        printable(_holds(node)) if node.state is not NodeState.LEFT else "",
        str(len(node.trials) or ""),
        _ago(node.joined_at, now),
        _ago(node.heard_at, now),
        "" if free is None else size(free),
        printable(node.hostname),
        printable(node.address),
    ]


def _holds(node: ListedNode) -> str:
    """`CPU 3/8, GPU 1/2`; memory, which few trials ask for, last and only if it is held."""
    first = ("CPU", "GPU")
    names = [
        *(name for name in first if name in node.resources),
        *(name for name in node.resources if name not in (*first, "memory")),
        *(["memory"] if node.held.get("memory") else []),
    ]
    return ", ".join(
        f"{name} {_amount(name, node.held.get(name, 0))}/{_amount(name, node.resources[name])}"
        for name in names
    )


def _amount(name: str, amount: float) -> str:
    return size(amount) if name == "memory" else f"{amount:g}"


def _causes(nodes: Sequence[ListedNode], now: float) -> Iterator[str]:
    for node in nodes:
        if node.state is NodeState.LEAVING:
            yield f"{node.name} leaves" + (f": {node.cause}" if node.cause else "")
        if node.state is NodeState.LEFT and node.cause != RUN_ENDED:
            when = f" {_ago(node.left_at, now)}" if node.left_at is not None else ""
            yield f"{node.name} has left{when}" + (f": {node.cause}" if node.cause else "")


def _ago(at: float | None, now: float) -> str:
    return "" if at is None else f"{duration(max(0.0, now - at))} ago"
