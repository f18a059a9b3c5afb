"""Recorded curves as a training that can be repeated, and varied."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from holdfast.experiment.records.rows import columns_of
from holdfast.experiment.user_objects.placeholders import config_without_code
from holdfast.simulate.recording import RecordedTrial
from holdfast.trial.plain import is_number

_WIDE = 100.0


class OwnConfig(dict[str, Any]):
    """A config with its recorded trial; "" if it belongs to none."""

    trial_id = ""


class CurvePoint(NamedTuple):
    """The position of a training on a recorded curve; `metrics` are those of the newest report
    if they differ from the recorded ones."""

    source: str
    iteration: int
    metrics: Mapping[str, Any] | None = None


class RecordedCurve:
    """A `Curve` from the reports of recorded trials.

    `cut_short` has the trials whose curve was followed to an early end: they had been stopped or
    had failed before they had come as far as others. `approximated` counts reports of configs that
    were not recorded.
    """

    def __init__(self, trials: Sequence[RecordedTrial]) -> None:
        self._trials = {trial.spec.trial_id: trial for trial in trials}
        self._longest = max((len(trial.reports) for trial in trials), default=0)
        reporting = [trial for trial in trials if trial.reports]
        self._nearest = Nearest(
            [(config_without_code(t.spec.config), t.spec.trial_id) for t in reporting]
        )
        self.cut_short: set[str] = set()
        self.approximated = 0

    def begin(self, config: dict[str, Any]) -> CurvePoint:
        return CurvePoint(self._source(config), 0)

    def step(
        self, state: CurvePoint, config: dict[str, Any]
    ) -> tuple[CurvePoint, Mapping[str, Any] | None]:
        source = self._source(config)
        trial, done = self._trials[source], state.iteration
        if done >= len(trial.reports):
            if not trial.is_whole and done < self._longest:
                self.cut_short.add(source)
            return state, None
        target = trial.reports[done].metrics
        self.approximated += not _recorded_id(config)
        if state.metrics is None and (state.source == source or not done):
            return CurvePoint(source, done + 1), target
        former = state.metrics
        if former is None:
            former = self._trials[state.source].reports[done - 1].metrics
        base = trial.reports[done - 1].metrics if done else {}
        metrics = {
            key: self._moved(key, former.get(key), base.get(key), target[key]) for key in target
        }
        return CurvePoint(source, done + 1, metrics), metrics

    def seconds(
        self, config: dict[str, Any], iteration: int, resources: Mapping[str, float]
    ) -> float:
        """The seconds of that iteration; 0 if it was not recorded."""
        reports = self._trials[self._source(config)].reports
        return reports[iteration - 1].seconds if iteration <= len(reports) else 0.0

    def _moved(self, key: str, former: object, base: object, target: object) -> object:
        """`former`, changed as the recorded value changed. Only numbers change; others are copied.

        It stays within the range of all recorded values, so that no accuracy exceeds 1.
        """
        have, low, high = number(former), number(base), number(target)
        if have is None or low is None or high is None:
            return target
        least, most = self._ranges[key]
        return min(max(have + (high - low), least), most)

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The least and greatest reported value of each metric that is a number."""
        found: dict[str, tuple[float, float]] = {}
        for trial in self._trials.values():
            for report in trial.reports:
                for key, value in report.metrics.items():
                    if (known := number(value)) is not None:
                        least, most = found.get(key, (known, known))
                        found[key] = min(least, known), max(most, known)
        return found

    def _source(self, config: dict[str, Any]) -> str:
        """The trial whose curve a config follows."""
        return _recorded_id(config) or self._nearest.find(config)


def _recorded_id(config: dict[str, Any]) -> str:
    return config.trial_id if isinstance(config, OwnConfig) else ""


class Nearest:
    """Configs with names, to find the nearest one.

    The distance of two configs is the root of the sum of squares over their parameters: numbers by
    their share of the known range, as logarithms if it is positive and spans a factor of 100 or
    more; other values 0 if equal, else 1.
    """

    def __init__(self, known: Sequence[tuple[Mapping[str, Any], str]]) -> None:
        self._known = [(_flat(config), name) for config, name in known]
        keys = {key for config, _ in self._known for key in config}
        self._scales = {key: self._scale(key) for key in sorted(keys)}
        self._found: dict[str, str] = {}

    def find(self, config: Mapping[str, Any]) -> str:
        """The name of the nearest; of several the first. Raises ValueError if there is none."""
        flat = _flat(config)
        text = repr(sorted(flat.items()))
        if text not in self._found:
            self._found[text] = min(self._known, key=lambda one: self._distance(flat, one[0]))[1]
        return self._found[text]

    def _scale(self, key: str) -> tuple[float, float, bool] | None:
        """Least value and range of a parameter that is always a number, and if in logarithms."""
        values = [number(config[key]) for config, _ in self._known if key in config]
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(values) or not numbers:
            return None
        least, most = min(numbers), max(numbers)
        is_wide = least > 0 and most / least >= _WIDE
        if is_wide:
            least, most = math.log(least), math.log(most)
        return least, (most - least) or 1.0, is_wide

    def _distance(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        return math.hypot(*(self._apart(key, one, other) for key in self._scales))

    def _apart(self, key: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        scale = self._scales[key]
        here, there = number(one.get(key)), number(other.get(key))
        if scale is None or here is None or there is None:
            return float(one.get(key) != other.get(key))
        _, span, is_wide = scale
        if is_wide:
            here, there = math.log(max(here, 1e-300)), math.log(max(there, 1e-300))
        return (here - there) / span


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without empty dicts, with names such as `net/width`."""
    columns = columns_of(config)
    return {name: value for name, value in columns.items() if not isinstance(value, Mapping)}


def number(value: object) -> float | None:
    """A finite number, else None."""
    return float(value) if is_number(value) and math.isfinite(value) else None
