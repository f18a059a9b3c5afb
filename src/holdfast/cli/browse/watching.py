"""`holdfast show --watch` and `holdfast logs --follow`."""

from __future__ import annotations

import argparse
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from holdfast.cli.browse.output import show_overview
from holdfast.cli.printing import INTERRUPTED, SOUND, collected, complain, json_text, say
from holdfast.experiment.records.view import ExperimentView
from holdfast.results.following import INTERVAL_STORAGE_S, Followed, Watcher
from holdfast.results.logs import (
    INTERVAL_HERE_S,
    TrialLog,
    check_reachable,
    last_lines,
    layout_of,
    written,
)
from holdfast.results.overview import experiment_as_json
from holdfast.results.reading import KeptRecords
from holdfast.trial.trial import Trial
from holdfast.trial.values import finite


def follow_log(
    given: argparse.Namespace,
    experiment: ExperimentView,
    trial: Trial,
    name: str,
    *,
    find: Callable[[KeptRecords], ExperimentView],
) -> int:
    """Returns the exit code. Raises NoSuchLog if the trial ends without output, BrokenPipeError if
    nobody reads any more, and the errors of `find`."""
    check_reachable(experiment, trial, name)
    is_here = layout_of(experiment, trial, name) is not None
    usual = INTERVAL_HERE_S if is_here else INTERVAL_STORAGE_S
    followed = Followed(find)
    log = TrialLog(
        followed,
        trial.trial_id,
        name,
        given.interval or usual,
        rank=given.rank,
        wait=wait_for_reader,
        tell=complain,
    )
    write = partial(_write_json, trial.trial_id) if given.json else _write
    try:
        write(_pieces(log, given.tail))
    except KeyboardInterrupt:
        return INTERRUPTED  # the usual end: print nothing
    finally:
        followed.close()
    if not log.found_file:
        written(experiment, trial, name)  # raises, and names the existing files
    return SOUND


def _pieces(log: TrialLog, tail: int | None) -> Iterator[bytes]:
    there = log.news()
    yield from there if tail is None else [last_lines(there, tail)]
    yield from log.until_ended()


def _write(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _write_json(trial_id: str, pieces: Iterable[bytes]) -> None:
    for line in _lines(pieces):
        plain = {"trial_id": trial_id, "line": line.decode(errors="replace")}
        print(json_text(plain, in_a_line=True), flush=True)


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Each complete line; at the end also an incomplete one."""
    begun: list[bytes] = []
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join((*begun, line))
            begun.clear()
        begun.append(rest)
    if last := b"".join(begun):
        yield last


def wait_for_reader(seconds: float) -> None:
    """Raises BrokenPipeError if the reader of the output goes away meanwhile."""
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)
    for _, what in reader.poll(1000 * seconds):
        if what & (select.POLLERR | select.POLLHUP):
            raise BrokenPipeError
        time.sleep(seconds)  # macOS does not watch a terminal


# Lines of a view besides the rows of its table.
_AROUND = 14


def watch(given: argparse.Namespace, find: Callable[[KeptRecords], ExperimentView]) -> int:
    """Returns the exit code: 0 when no process runs the experiment any more. Raises the errors of
    `find`, and BrokenPipeError if nobody reads any more."""
    watcher = Watcher(find, given.interval, wait=wait_for_reader, tell=complain)
    try:
        if sys.stdout.isatty() and not given.json:
            _redraw(watcher, given)
        else:
            _print_changes(watcher, given)
    except KeyboardInterrupt:
        return INTERRUPTED  # the usual end: print nothing
    return SOUND


def _redraw(watcher: Watcher, given: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    experiment = None
    try:
        with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:
            for experiment, _ in watcher.views():
                room = max(3, shutil.get_terminal_size().lines - _AROUND)
                with collected() as lines:
                    _show(experiment, min(given.rows or room, room), costs=given.costs)
                text = Text(no_wrap=True, overflow="ellipsis")
                for line, style in lines:
                    text.append(f"{line}\n", style=style or None)
                text.rstrip()
                live.update(text, refresh=True)
    finally:
        if experiment is not None:  # the last one stays, complete, with commands to paste
            _show(experiment, given.rows or None, costs=given.costs)


def _print_changes(watcher: Watcher, given: argparse.Namespace) -> None:
    is_first = True
    for experiment, is_new in watcher.views():
        if not is_new:
            continue
        if given.json:
            plain = experiment_as_json(experiment, now=time.time())
            print(json_text(finite(plain), in_a_line=True))
        else:
            if not is_first:
                say("")
            _show(experiment, given.rows or None, costs=given.costs)
        sys.stdout.flush()
        is_first = False


def _show(experiment: ExperimentView, most: int | None, *, costs: bool) -> None:
    show_overview(experiment, now=time.time(), most=most, costs=costs)
