"""Replays one trial of a population by the schedule of configs in the policy's log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.scheduler.policy import (
    Abort,
    ChangeTrial,
    Decision,
    Observation,
    TrialAdded,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.trial.values import Opaque, Ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Training starts with the config `first`; each of `changes` applies after its iteration."""

    first: Mapping[str, Any]
    changes: tuple[tuple[int, Mapping[str, Any]], ...]


class ScheduleReplay(TrialScheduler):
    """Trains one trial by a schedule: at each change it resumes from its own checkpoint."""

    needs_checkpoints = True

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._done = 0

    @property
    def config(self) -> dict[str, Any]:
        """The config that training starts with, for `param_space`."""
        return dict(self._schedule.first)

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        match event:
            case TrialAdded() if len(view.trials) > 1:
                return [Abort(message=_ONE)]
            case TrialAdded():
                return [self._changed(view, event.trial_id, self._schedule.first)]
            case TrialReported():
                return self._reported(view, event.trial_id)
            case _:
                return ()

    def _reported(self, view: View, trial_id: str) -> Sequence[Decision]:
        iteration, changes = view.trials[trial_id].iteration, self._schedule.changes
        due = sum(at <= iteration for at, _ in changes)
        # A trial that fails and resumes from a checkpoint before a change keeps the new config.
        if due <= self._done:
            return ()
        self._done = due
        return [self._changed(view, trial_id, changes[due - 1][1])]

    def _changed(self, view: View, trial_id: str, config: Mapping[str, Any]) -> Decision:
        given = view.trials[trial_id].spec.config
        return ChangeTrial(trial_id=trial_id, config=_over(given, config))


_ONE = (
    "one trial replays a schedule: set TuneConfig(num_samples=1) and a param_space without "
    "grid_search"
)


def _over(given: Any, logged: Any) -> Any:
    """The logged config, with values that JSON cannot hold taken from `given`."""
    if isinstance(given, (Ref, Opaque)):
        return given
    if isinstance(given, Mapping) and isinstance(logged, Mapping):
        known = {key: _over(given[key], value) for key, value in logged.items() if key in given}
        return {**given, **logged, **known}
    return logged


def schedule_of(log: str) -> Schedule:
    """The schedule in the log of a trial's policy, which is JSON lines.

    The last line is the newest change of the trial itself; the lines above it belong to the trials
    that it was cloned from, up to a line of an unrelated trial. Raises ValueError if `log` is not
    such a log.
    """
    try:
        rows = [json.loads(line) for line in log.splitlines() if line.strip()]
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not rows or not all(map(_is_row, rows)):
        raise ValueError(
            "it is not a log of a trial's policy, with lines such as [tag, tag of the source, "
            "iteration, iteration of the source, config of the source, config]"
        )
    changes: list[tuple[int, Mapping[str, Any]]] = []
    begins, first = "", {}
    for tag, source, _, iteration, before, after in reversed(rows):
        if changes and tag != begins:
            break
        begins, first = source, before
        changes.append((iteration, after))
    return Schedule(first=first, changes=tuple(reversed(changes)))


_KINDS = (str, str, int, int, dict, dict)


def _is_row(row: object) -> bool:
    if not isinstance(row, list) or len(row) != len(_KINDS):
        return False
    return all(isinstance(value, kind) for value, kind in zip(row, _KINDS, strict=True))
