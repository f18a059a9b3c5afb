"""`holdfast show`: what the scheduler decided, below the table of trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.cli.printing import say
from holdfast.experiment.progress.scheduler_facts import (
    RungCount,
    TakeoverFact,
    changes_text,
    number,
    rung_counts,
    takeover_facts,
)
from holdfast.experiment.progress.stop_reasons import short_name
from holdfast.experiment.progress.text_width import aligned
from holdfast.experiment.progress.wording import counted, format_cell
from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.trial import Trial

_SHOWN_TAKEOVERS = 10


def show_scheduler(trials: Iterable[Trial], spec: ExperimentSpec, width: int) -> None:
    """Print the rungs, or the newest takeovers; nothing if there are none."""
    known = list(trials)
    name = short_name(spec.scheduler)
    if rungs := rung_counts(known):
        say("")
        by = f", by {spec.metric}" if spec.metric else ""
        say(f"{name}: the rungs{by}")
        _print(rung_lines(rungs), width)
    if takeovers := takeover_facts(known):
        say("")
        shown = takeovers[-_SHOWN_TAKEOVERS:]
        more = f", the last {len(shown)} (--json has all)" * (len(shown) < len(takeovers))
        say(f"{name}: {counted(len(takeovers), 'takeover', 'takeovers')}{more}")
        _print(takeover_lines(shown), width)


def _print(lines: Sequence[Sequence[str]], width: int) -> None:
    for line, style in zip(aligned(lines, width), ["bold", *[""] * len(lines)], strict=False):
        say(line, style)


def rung_lines(rungs: Sequence[RungCount]) -> list[list[str]]:
    """The header and a line for each rung; columns that say nothing are left out."""
    brackets = len({rung.bracket for rung in rungs}) > 1
    waits = any(rung.waiting for rung in rungs)
    judged = any(rung.cutoff is not None for rung in rungs)
    lines = [["BRACKET", "RUNG", "REACHED", "PROMOTED", "STOPPED", "WAITING", "CUTOFF"]]
    lines += [
        [
            str(rung.bracket),
            f"{rung.milestone:g}",
            str(rung.reached),
            str(rung.promoted),
            str(rung.stopped),
            str(rung.waiting),
            format_cell(rung.cutoff),
        ]
        for rung in rungs
    ]
    kept = (brackets, True, True, True, True, waits, judged)
    return [[cell for cell, is_kept in zip(line, kept, strict=True) if is_kept] for line in lines]


def takeover_lines(takeovers: Sequence[TakeoverFact]) -> list[list[str]]:
    """The header and a line for each takeover."""
    return [
        ["TRIAL", "AT", "CONTINUES", "FROM", "CHANGES"],
        *(
            [
                number(one.trial_id),
                str(one.iteration),
                number(one.source),
                str(one.source_iteration),
                changes_text(one.changes),
            ]
            for one in takeovers
        ),
    ]
