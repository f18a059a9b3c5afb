"""`holdfast show --watch`: redraws the experiment, or prints each change."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable

from holdfast.cli.browse.output import show_overview
from holdfast.cli.following import wait_for_reader
from holdfast.cli.printing import INTERRUPTED, SOUND, collected, complain, json_text, say
from holdfast.experiment.browse.locate import LocatedExperiment
from holdfast.experiment.browse.overview import experiment_as_json, overview
from holdfast.experiment.browse.watching import View, Watcher
from holdfast.trial.values import finite

# Lines of a view besides the rows of its table.
_AROUND = 14


def watch(given: argparse.Namespace, find: Callable[[], LocatedExperiment]) -> int:
    """Returns the exit code: 0 when no process runs the experiment any more. Raises the errors of
    `find`, and BrokenPipeError if nobody reads any more."""
    watcher = Watcher(
        find,
        given.interval,
        wait=wait_for_reader,
        tell=complain,
        cpu=time.process_time,
        now=time.time,
    )
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

    view = None
    try:
        with Live(console=Console(highlight=False), auto_refresh=False, transient=True) as live:
            for view in watcher.views():
                room = max(3, shutil.get_terminal_size().lines - _AROUND)
                with collected() as lines:
                    _show(view, min(given.rows or room, room), costs=given.costs)
                text = Text(no_wrap=True, overflow="ellipsis")
                for line, style in lines:
                    text.append(f"{line}\n", style=style or None)
                text.rstrip()
                live.update(text, refresh=True)
    finally:
        if view is not None:  # the last one stays, complete, with commands to paste
            _show(view, given.rows or None, costs=given.costs)


def _print_changes(watcher: Watcher, given: argparse.Namespace) -> None:
    is_first = True
    for view in watcher.views():
        if not view.is_new:
            continue
        if given.json:
            plain = experiment_as_json(view.experiment, now=time.time())
            print(json_text(finite(plain), in_a_line=True))
        else:
            if not is_first:
                say("")
            _show(view, given.rows or None, costs=given.costs)
        sys.stdout.flush()
        is_first = False


def _show(view: View, most: int | None, *, costs: bool) -> None:
    now = time.time()
    about = overview(view.experiment, now=now)
    show_overview(about, view.experiment, now=now, most=most, costs=costs)
