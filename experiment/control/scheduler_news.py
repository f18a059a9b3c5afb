"""Messages about what a scheduler has just decided: the first of each kind are shown, later ones
counted. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.experiment.progress.scheduler_facts import takeover_fact
from holdfast.experiment.progress.summarizer import value_of
from holdfast.experiment.progress.wording import is_shown
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import Decision, NoteRung
from holdfast.text.trials import changes_text, number, short_name
from holdfast.trial.trial import Trial
from holdfast.trial.values import spread


class SchedulerNews:
    """Decides which takeovers and halvings are shown."""

    def __init__(self) -> None:
        self._takeovers = self._halvings = 0

    def after(self, machine: Machine) -> list[str]:
        """The messages about the event that the machine has just handled."""
        if not any(machine.answers):
            return []
        lines = []
        for before in machine.moved.values():
            after = machine.trials[before.trial_id]
            if len(after.takeovers) > len(before.takeovers):
                self._takeovers += 1
                if is_shown(self._takeovers):
                    lines.append(takeover_text(machine, before, after))
        for decided in machine.answers:
            for text in _halvings(machine, decided):
                self._halvings += 1
                if is_shown(self._halvings):
                    lines.append(text)
        return lines


def takeover_text(machine: Machine, before: Trial, after: Trial) -> str:
    """`PBT: 00003 (loss=0.5) continues from 00001 (loss=0.25) at iteration 4: lr 0.1 → 0.02`."""
    fact = takeover_fact(after.trial_id, after.takeovers[-1], spread(before.config))
    metric = machine.spec.metric

    def shown(trial: Trial) -> str:
        value = value_of(trial, metric)
        return number(trial.trial_id) + (f" ({metric}={value:.4g})" if value is not None else "")

    # The newest row of its own; it has none any more if it was launched at once.
    own = after if after.row is not None else before
    changes = changes_text(fact.changes)
    return (
        f"{short_name(machine.spec.scheduler)}: at iteration {fact.iteration}, {shown(own)} "
        f"continues from {shown(machine.trials[fact.source])} at iteration "
        f"{fact.source_iteration}" + (f": {changes}" if changes else "")
    )


def _halvings(machine: Machine, decided: Sequence[Decision]) -> Iterator[str]:
    """A line for each rung at which some trials continue and others stop, all at once."""
    notes = [one for one in decided if isinstance(one, NoteRung) and one.promoted is not None]
    reached = Counter((one.bracket, one.milestone) for one in notes)
    promoted = Counter((one.bracket, one.milestone) for one in notes if one.promoted)
    cutoffs = {(one.bracket, one.milestone): one.cutoff for one in notes}
    for key, count in reached.items():
        if not 0 < promoted[key] < count:
            continue
        bracket, milestone = key
        cutoff = cutoffs[key]
        at_least = "" if cutoff is None else f"; the cutoff is {machine.spec.metric}={cutoff:.4g}"
        yield (
            f"{short_name(machine.spec.scheduler)}: {promoted[key]} of the {count} trials at rung "
            f"{milestone:g} of bracket {bracket} continue{at_least}"
        )
