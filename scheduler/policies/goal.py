"""What schedulers compare: how good a trial was, after how much training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policy import (
    Abort,
    Decision,
    Observation,
    Tell,
    TrialEnded,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.scheduler.state import row_of
from holdfast.trial.absent import names_text, near_text
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.stopper import lookup

MODES = ("min", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`metric` is to be small or large (`mode`); `time_attr` counts training."""

    metric: str
    mode: str
    time_attr: str

    def value(self, row: Mapping[str, Any]) -> float | None:
        """How good the row is: more is better, whatever the mode. None where it does not say.

        A value that is not finite has overflown or diverged: it is worse than any other.
        """
        value = lookup(row, self.metric)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if not math.isfinite(value):
            return -math.inf
        return float(value) if self.mode == "max" else -float(value)

    def time(self, row: Mapping[str, Any]) -> float | None:
        """How much training there was before the row; None where it does not say."""
        time = lookup(row, self.time_attr)
        is_number = isinstance(time, (int, float)) and math.isfinite(time)
        return float(time) if is_number else None


class Judging(TrialScheduler):
    """Base of schedulers that judge trials by their reports, each worth `goal.value` at
    `goal.time`.

    A report without the metric is passed over, and one in which that is no number, which is told
    once. One without `time_attr` ends the run: nothing could ever be judged.
    """

    goal: Goal
    _has_told_oddity = False

    def __init__(self, time_attr: str, metric: str | None, mode: str | None) -> None:
        """Raises InvalidConfig."""
        name = type(self).__name__
        require(mode is None or mode in MODES, f"{name}(mode={mode!r}): give 'min' or 'max'")
        for what, given in (("metric", metric), ("time_attr", time_attr)):
            is_name = isinstance(given, str) and given != ""
            fits = is_name or (given is None and what == "metric")
            require(fits, f"{name}({what}={given!r}): give the name of a value that is reported")
        self.metric, self.mode = metric, mode
        self._time_attr = time_attr

    def begun(self, spec: ExperimentSpec) -> Self:
        fresh = super().begun(spec)
        fresh.goal = Goal(
            metric=self._agreed("metric", self.metric, spec.metric),
            mode=self._agreed("mode", self.mode, spec.mode),
            time_attr=self._time_attr,
        )
        return fresh

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if not isinstance(event, TrialReported):
            return self.look(view, event)
        time, value = self.goal.time(event.row), self.goal.value(event.row)
        if time is None:
            return [Abort(message=timeless(self, self._time_attr, event.row))]
        return self._odd(event) if value is None else self.judge(view, event, time, value)

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        """What follows from a report that is worth `value` (more is better) after `time`."""
        raise NotImplementedError(f"{type(self).__name__} must define judge()")

    def look(self, view: View, event: Observation) -> Sequence[Decision]:
        """What follows from anything else."""
        return ()

    def final(self, view: View, event: TrialEnded) -> tuple[float, float] | None:
        """After how much training a trial has ended, and what it was worth; None where its last
        report does not say.

        One that reached a bound of the user's ended the trial without a word of the scheduler's.
        """
        trial = view.trials[event.trial_id]
        if trial.row is None:
            return None
        row = row_of(trial)
        time, value = self.goal.time(row), self.goal.value(row)
        return None if time is None or value is None else (time, value)

    def _odd(self, event: TrialReported) -> Sequence[Decision]:
        found = lookup(event.row, self.goal.metric)
        if found is None or self._has_told_oddity:
            return ()
        self._has_told_oddity = True
        return [
            Tell(
                text=f"{type(self).__name__}: {self.goal.metric!r} is {found!r:.100} in a report "
                f"of trial {event.trial_id}. It compares numbers, and passes over such reports"
            )
        ]

    def _agreed(self, what: str, own: str | None, tuners: str | None) -> str:
        name = type(self).__name__
        if own is not None and tuners is not None and own != tuners:
            raise InvalidConfig(
                f"{name}({what}={own!r}) and TuneConfig({what}={tuners!r}) differ: give it once"
            )
        given = own or tuners
        if given is None:
            raise InvalidConfig(
                f"{name} compares trials by a metric, and is given no {what}: name it in "
                f"TuneConfig({what}=...) or in {name}({what}=...)"
            )
        return given


def timeless(scheduler: TrialScheduler, time_attr: str, row: Mapping[str, Any]) -> str:
    """What to say of a report that does not tell how much training there was."""
    return (
        f"{type(scheduler).__name__}(time_attr={time_attr!r}): a report has no such number."
        f"{near_text([time_attr], row)} Reported were: {names_text(row)}"
    )


def is_number(value: object, *, least: float, above: bool = False) -> bool:
    """Whether a setting is a finite number, from `least` on, or `above` it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return False
    return value > least if above else value >= least
