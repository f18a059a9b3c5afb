"""What schedulers compare: the value of a trial, and how long it has trained. `Chance` draws their
random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Self, TypeGuard

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import finite_number, is_finite, is_number
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policy import (
    Abort,
    Decision,
    NoteRung,
    Observation,
    StopTrial,
    Tell,
    TrialEnded,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.scheduler.state import row_of
from holdfast.schema import maker
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.metrics import MODES, lookup, names_text, near_text
from holdfast.trial.trial import Trial

# Four of ten reports reach a rung, if values are random.
_note_rung = maker(NoteRung)


class Chance:
    """A source of numbers in [0, 1), like `random.Random`, determined by a name.

    Numbers for different names are independent, so no state must be kept between two decisions:
    `Chance(f"{seed}/{trial_id}/{iteration}")`.
    """

    __slots__ = ("_count", "_encoded", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._encoded = name.encode()
        self._count = 0

    def random(self) -> float:
        """The next number; it has 53 bits."""
        self._count += 1
        digest = blake2b(b"%d/%s" % (self._count, self._encoded), digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Minimize or maximize (`mode`) `metric`; `time_attr` measures training."""

    metric: str
    mode: str
    time_attr: str

    def value(self, row: Mapping[str, Any]) -> float | None:
        """The value of a row, where more is better in both modes; None if it has no such number.

        A value that is not finite has overflowed or diverged: it is worse than any other.
        """
        value = lookup(row, self.metric)
        if not is_number(value):
            return None
        if not math.isfinite(value):
            return -math.inf
        return float(value) if self.mode == "max" else -float(value)

    def own(self, value: float | None) -> float | None:
        """A value of `value` as the user reported it; None for one that is not finite."""
        if value is None or not math.isfinite(value):
            return None
        return value if self.mode == "max" else -value

    def of_own(self, own: float | None) -> float:
        """The value that `own` was called with."""
        if own is None:
            return -math.inf
        return own if self.mode == "max" else -own

    def text(self, value: float) -> str:
        """`loss=0.25`, from a value of `value`."""
        own = self.own(value)
        return f"{self.metric} is not finite" if own is None else f"{self.metric}={own:.4g}"

    def worse(self, value: float, time: float, cutoff: float | None) -> str:
        """Why a trial stops at a rung."""
        at = f"{self.text(value)} at {self.time_attr}={time:g}"
        own = self.own(cutoff)
        return at if own is None else f"{at} is worse than the cutoff, {own:.4g}"

    def time(self, row: Mapping[str, Any]) -> float | None:
        """How much training the row counts; None if it has no such number."""
        return finite_number(lookup(row, self.time_attr))


class Judging(TrialScheduler):
    """Base class of schedulers that judge trials by reports: `goal.value` at `goal.time`.

    A report whose metric is missing or not a number is skipped; the latter is logged once. A
    report without `time_attr` ends the run: no trial could ever be judged.
    """

    goal: Goal
    _has_warned_of_oddity = False
    _seed = 0
    _max_t, _stops_last = math.inf, False

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        """Raise InvalidConfig if a setting is not valid."""
        name = type(self).__name__
        require(mode is None or mode in MODES, f"{name}(mode={mode!r}): pass 'min' or 'max'")
        for what, given in (("metric", metric), ("time_attr", time_attr)):
            is_name = isinstance(given, str) and given != ""
            fits = is_name or (given is None and what == "metric")
            require(fits, f"{name}({what}={given!r}): pass the name of a reported value")
        self.metric, self.mode = metric, mode
        self._time_attr = time_attr

    @property
    def most_iterations(self) -> float | None:
        """The iteration at which it ends each trial; None if it does not."""
        counts = self._stops_last and self._time_attr == "training_iteration"
        return self._max_t if counts else None

    def begun(self, spec: ExperimentSpec) -> Self:
        fresh = super().begun(spec)
        fresh.goal = self.goal_of(spec)
        fresh._seed = spec.seed
        return fresh

    def goal_of(self, spec: ExperimentSpec) -> Any:
        """The Goal of the experiment. Raises InvalidConfig if it has none, or another one."""
        return Goal(
            metric=self._agreed("metric", self.metric, spec.metric),
            mode=self._agreed("mode", self.mode, spec.mode),
            time_attr=self._time_attr,
        )

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if not isinstance(event, TrialReported):
            return self.on_other(view, event)
        time, value = self.goal.time(event.row), self.goal.value(event.row)
        if time is None or value is None:
            return self.lacks(event, is_timed=time is not None)
        return self.judge(view, event, time, value)

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        """The decisions after a report with `value` (more is better) at `time`."""
        raise NotImplementedError(f"{type(self).__name__} must define judge()")

    def lacks(self, event: TrialReported, *, is_timed: bool) -> Sequence[Decision]:
        """The decisions after a report without a number for the time, or for the metric."""
        if not is_timed:
            return [Abort(message=timeless(self, self._time_attr, event.row))]
        return self._skip_non_number(event)

    def on_other(self, view: View, event: Observation) -> Sequence[Decision]:
        """The decisions after any other event."""
        return ()

    def rung_note(
        self,
        trial_id: str,
        milestone: float,
        value: Any,
        promoted: bool | None,
        *,
        cutoff: float | None = None,
        bracket: int = 0,
    ) -> NoteRung:
        """The note of a trial at a rung; `value` and `cutoff` are values of `goal.value`."""
        return _note_rung(
            trial_id=trial_id,
            milestone=milestone,
            promoted=promoted,
            value=self.goal.own(value),
            cutoff=self.goal.own(cutoff),
            bracket=bracket,
        )

    def at_most(self, trial_id: str, max_t: float) -> StopTrial:
        """The end of a trial that has trained as long as any may."""
        why = f"{self._time_attr} reached max_t={max_t:g}"
        return StopTrial(trial_id=trial_id, why=why, is_early=False)

    def final(self, view: View, event: TrialEnded) -> tuple[float, float] | None:
        """When a trial ended, and its value then; None if its last report has no such numbers.

        The scheduler has not seen the report of a trial that reached one of the user's bounds.
        """
        return self.numbers(view.trials[event.trial_id])

    def numbers(self, trial: Trial) -> tuple[float, float] | None:
        """The time and the value of its last report; None if it has none with such numbers."""
        if trial.row is None:
            return None
        row = row_of(trial)
        time, value = self.goal.time(row), self.goal.value(row)
        return None if time is None or value is None else (time, value)

    def _skip_non_number(self, event: TrialReported) -> Sequence[Decision]:
        """Skip a report without a number; log the first one whose metric is something else."""
        found = lookup(event.row, self.goal.metric)
        if found is None or self._has_warned_of_oddity:
            return ()
        self._has_warned_of_oddity = True
        return [
            Tell(
                text=f"{type(self).__name__}: {self.goal.metric!r} is {found!r:.100} in a report "
                f"of trial {event.trial_id}, not a number. Such reports are skipped"
            )
        ]

    def _agreed(self, what: str, own: str | None, tuners: str | None) -> str:
        name = type(self).__name__
        if own is not None and tuners is not None and own != tuners:
            raise InvalidConfig(
                f"{name}({what}={own!r}) and TuneConfig({what}={tuners!r}) differ: "
                f"set it only once"
            )
        given = own or tuners
        if given is None:
            raise InvalidConfig(
                f"{name} compares trials by a metric and needs a {what}: set it in "
                f"TuneConfig({what}=...) or in {name}({what}=...)"
            )
        return given


def timeless(scheduler: TrialScheduler, time_attr: str, row: Mapping[str, Any]) -> str:
    """The error for a report without a number under `time_attr`."""
    return (
        f"{type(scheduler).__name__}(time_attr={time_attr!r}): a report has no such number."
        f"{near_text([time_attr], row)} A restore keeps the scheduler's arguments: correct them "
        f"and start a new run under another name=.... Reported: {names_text(row)}"
    )


def check_number(
    owner: object,
    name: str,
    value: object,
    *,
    least: float,
    most: float = math.inf,
    above: bool = False,
    what: str = "",
) -> None:
    """Raise InvalidConfig unless a setting of `owner` is a finite number from `least` to `most`;
    with `above`, above `least`. `what` is another description of the allowed numbers."""
    if above:
        allowed = f"a number above {least}"
    elif most < math.inf:
        allowed = f"a number from {least} to {most}"
    else:
        allowed = f"a number, {least} or more"
    fits = is_finite_number(value, least=least, above=above) and value <= most
    require(fits, f"{type(owner).__name__}({name}={value!r}): pass {what or allowed}")


def check_count(owner: object, name: str, value: object) -> None:
    """Raise InvalidConfig unless a setting of `owner` is a whole number above 0."""
    fits = type(value) is int and value > 0
    require(fits, f"{type(owner).__name__}({name}={value!r}): pass a whole number above 0")


def is_finite_number(value: object, *, least: float, above: bool = False) -> TypeGuard[float]:
    """True for a setting that is a finite number and at least `least`, or `above` it."""
    return is_finite(value) and (value > least if above else value >= least)
