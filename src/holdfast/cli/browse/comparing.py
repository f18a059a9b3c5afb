"""`holdfast compare`: a column for each side, and the learning curves."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence

from holdfast.cli.browse.output import terminal_width
from holdfast.cli.common_arguments import named_path
from holdfast.cli.printing import SOUND, say, say_json
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.view import ExperimentView
from holdfast.results.comparison import Comparison, Side, compare, split_trial
from holdfast.results.drawing import (
    MOST_CURVES,
    check_picture,
    draw_curves,
    letters_of,
    save_picture,
    text_curves,
)
from holdfast.results.ranking import goals_text
from holdfast.results.reading import ExperimentNotFound, find_enclosing
from holdfast.text.trials import state_word
from holdfast.text.values import aligned, duration, format_cell, param_cell, width_of
from holdfast.trial.errors import InvalidConfig

_SHOWN_SAME = 12
_NARROW = 80
_SETTING_WIDTH = 40


def compare_sides(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code. Raises the errors of `find` and `compare`."""
    if len(given.sides) > MOST_CURVES:
        raise InvalidConfig(f"compare takes at most {MOST_CURVES} experiments or trials")
    if given.output is not None:
        check_picture(given.output)
    found = list(_found(given, settings))
    made = compare(found, now=time.time(), metric=given.metric, mode=given.mode, x=given.x)
    if given.output is not None:
        curves = [side.curve for side in made.sides]
        axes = draw_curves(curves, metric=_metric(made), x=made.x)
        save_picture(axes, given.output)
    if given.json:
        say_json({**made.plain(), "output": given.output})
        return SOUND
    _show(made)
    if given.output is None:
        _plot(made)
    else:
        say(f"curves: {given.output}")
    return SOUND


def _found(
    given: argparse.Namespace, settings: Settings
) -> Iterator[tuple[ExperimentView, str | None]]:
    known: dict[str, ExperimentView] = {}

    def read(path: str) -> ExperimentView:
        if path not in known:
            known[path] = find_enclosing(named_path(path, given), settings, os.environ)
        return known[path]

    for text in given.sides:
        head, trial = split_trial(text, lambda path: _is_there(read, path))
        experiment = read(head)
        yield experiment, trial or experiment.only or None


def _is_there(read: Callable[[str], ExperimentView], path: str) -> bool:
    try:
        read(path)
    except ExperimentNotFound:
        return False
    return True


def _show(made: Comparison) -> None:
    columns = [
        [
            side.label,
            *_facts(side, made),
            *(param_cell(side.settings, name, _SETTING_WIDTH) for name in made.settings),
            *(param_cell(side.params, name) for name in made.differing),
        ]
        for side in made.sides
    ]
    names = ["", *_FACTS, *made.settings, *made.differing]
    for block in _blocks(names, columns):
        lines = list(zip(names, *block, strict=True))
        head, *rest = aligned(lines)
        say(head, "bold")
        for line, row in zip(rest, lines[1:], strict=True):
            if any(row[1:]):
                say(line)
        say("")
    if made.same:
        shown = [f"{name}={param_cell(made.same, name)}" for name in made.same][:_SHOWN_SAME]
        more = len(made.same) - len(shown)
        say(f"alike: {' '.join(shown)}{f' and {more} more' if more else ''}")
        say("")
    if made.metric is None:
        say(_no_common_metric(made))
        say("")


def _no_common_metric(made: Comparison) -> str:
    if any(side.metric for side in made.sides):
        return "their metrics differ: pass --metric and --mode to compare one of them"
    if any(side.spec.goals for side in made.sides):
        return "several goals: pass --metric to compare by one; holdfast best lists the front"
    return "they have no metric: pass --metric and --mode"


_FACTS = ("state", "trials", "ran", "metric", "best", "trial", "stopped", "iteration", "time")


def _facts(side: Side, made: Comparison) -> list[str]:
    trial = side.trial
    first = made.best
    is_best = first is not None and (side is first or side.value == first.value)
    best = " (best)" if is_best and len(made.sides) > 1 else ""
    goal = f"{side.metric} ({side.mode})" if side.metric and side.mode else side.metric or ""
    goal = goal or goals_text(side.spec.goals)
    value = "" if side.value is None else f"{format_cell(side.value)}{best}"
    about = [
        side.standing.state.value,
        side.standing.text,
        duration(side.active_s),
    ]
    if side.is_trial:
        about = [side.standing.state.value, "", ""]
    if trial is None:
        return [*about, goal, value, "", "", "", ""]
    return [
        *about,
        goal,
        value,
        trial.trial_id,
        state_word(trial.status, side.stop_reason),
        str(trial.iteration),
        duration(trial.time_total_s),
    ]


def _blocks(names: Sequence[str], columns: list[list[str]]) -> Iterator[list[list[str]]]:
    """As many columns next to each other as the terminal has room for."""
    limit = terminal_width()
    while columns:
        used, count = max(map(width_of, names)), 0
        for column in columns:
            used += 2 + max(map(width_of, column))
            if count and limit and used > limit:
                break
            count += 1
        yield columns[:count]
        columns = columns[count:]


def _plot(made: Comparison) -> None:
    curves = [side.curve for side in made.sides]
    width = (terminal_width() or _NARROW) - 1
    lines = text_curves(curves, metric=_metric(made), x=made.x, width=width)
    if not lines and not any(side.metric for side in made.sides):
        return
    if not lines:
        say("there are no learning curves: no side has reported a value")
        return
    for line in lines:
        say(line)
    for letter, side in zip(letters_of(curves), made.sides, strict=True):
        say(f"  {letter or '-'} {side.label}{'' if letter else ': no values'}")


def _metric(made: Comparison) -> str:
    names = dict.fromkeys(side.metric for side in made.sides if side.metric)
    return ", ".join(names) or "no metric"
