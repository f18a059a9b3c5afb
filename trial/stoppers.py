"""Stop conditions: the base class `Stopper`, and those that are ready-made.

`RunConfig(stop=...)` takes any of them. They see each accepted report in order, and decide by
reports alone: after a restore has replayed the same reports, they are in the same state. An
iteration that runs again, after a failure or a restore, counts once.
"""

from __future__ import annotations

import math
from array import array
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from holdfast.described import Construction, Described
from holdfast.plain_numbers import finite_number, is_finite, plain_number
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.metrics import MODES, lookup


class Stopper(Described):
    """Decides after each report whether its trial, or every trial, ends.

    Subclass it and override both methods. They run in a thread of the script's process, outside
    the control loop and with a deadline. If one raises, the trial that reported fails.
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """True ends the trial that reported `result`."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def stop_all(self) -> bool:
        """True ends the whole experiment; called after each report."""
        return False


class NoopStopper(Stopper):
    """Never ends anything."""

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return False


class MaximumIterationStopper(Stopper):
    """Ends each trial at report number `max_iter`. Raises InvalidConfig."""

    def __init__(self, max_iter: int) -> None:
        self.max_iter = _count("max_iter", max_iter, 1)

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return bool(result["training_iteration"] >= self.max_iter)


class TimeoutStopper(Stopper):
    """Ends the experiment after it has run for `timeout`: seconds, or a timedelta.

    In RunConfig(stop=...), alone or in a CombinedStopper, it counts like
    `TuneConfig(time_budget_s=...)`: from the beginning and over all restores, without the time
    between them, and it ends the run even if no trial reports. If a stopper of your own contains
    one, call it with each report: it counts the time from the first report to the newest.

    Raises InvalidConfig.
    """

    def __init__(self, timeout: Any) -> None:
        seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout
        self.timeout_s = _number("timeout", seconds, "seconds above 0, or a timedelta", timeout)
        _require(self.timeout_s > 0, "timeout", "seconds above 0, or a timedelta", timeout)
        self._first: float | None = None
        self._newest = 0.0

    def construction(self) -> Construction:
        """Describe a timedelta by its seconds, which are plain."""
        return super().construction().with_arguments(timeout=self.timeout_s)

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        self._newest = float(result["timestamp"])
        self._first = self._newest if self._first is None else self._first
        return False

    def stop_all(self) -> bool:
        return self._first is not None and self._newest - self._first >= self.timeout_s


class TrialPlateauStopper(Stopper):
    """Ends a trial whose `metric` has stopped changing.

    It ends when the standard deviation of its last `num_results` values is below `std`, from
    report number `grace_period` on. With a `metric_threshold` and a `mode`, it continues as long
    as its newest value is worse than the threshold: above it for "min", below it for "max".

    A value that is missing, NaN, infinite or not a number postpones the check until `num_results`
    valid values follow it. `metric` may be nested, as in `eval/loss`.

    Raises InvalidConfig.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: Literal["min", "max"] | None = None,
    ) -> None:
        self.metric = _name(metric)
        self.std = _number("std", std, "a number above 0")
        _require(self.std > 0, "std", "a number above 0", std)
        self.num_results = _count("num_results", num_results, 1)
        self.grace_period = _count("grace_period", grace_period, 0)
        _require(mode is None or mode in MODES, "mode", "'min', 'max' or None", mode)
        if metric_threshold is not None:
            metric_threshold = _number("metric_threshold", metric_threshold, "a number or None")
            _require(mode is not None, "mode", "'min' or 'max' with a metric_threshold", mode)
        self.metric_threshold = metric_threshold
        self.mode = mode
        self._values: dict[str, array[float]] = {}

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        value = _value(result, self.metric)
        iteration: int = result["training_iteration"]
        values = self._values.setdefault(trial_id, array("d"))
        del values[iteration - 1 :]
        values.extend([math.nan] * (iteration - 1 - len(values)))
        values.append(value)
        if iteration < self.grace_period or len(values) < self.num_results:
            return False
        return not self._is_worse(value) and _std(values[-self.num_results :]) < self.std

    def _is_worse(self, value: float) -> bool:
        if self.metric_threshold is None:
            return False
        if self.mode == "min":
            return value > self.metric_threshold
        return value < self.metric_threshold


class ExperimentPlateauStopper(Stopper):
    """Ends the experiment when its best values have stopped improving.

    It ends when the standard deviation of the `top` best values of `metric`, over all reports of
    all trials, has been at most `std` for `patience` reports in a row. `mode` says whether low
    values ("min") or high values ("max") are best.

    A report is ignored if its value is missing, NaN, infinite or not a number. `metric` may be
    nested, as in `eval/loss`.

    Raises InvalidConfig.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.001,
        top: int = 10,
        mode: Literal["min", "max"] = "min",
        patience: int = 0,
    ) -> None:
        self.metric = _name(metric)
        self.std = _number("std", std, "a number above 0")
        _require(self.std > 0, "std", "a number above 0", std)
        self.top = _count("top", top, 2)
        _require(mode in MODES, "mode", "'min' or 'max'", mode)
        self.mode = mode
        self.patience = _count("patience", patience, 0)
        self._best: list[float] = []
        self._waited = 0
        self._newest: dict[str, int] = {}

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        value = _value(result, self.metric)
        iteration: int = result["training_iteration"]
        if math.isfinite(value) and iteration > self._newest.get(trial_id, 0):
            self._newest[trial_id] = iteration
            insort(self._best, value if self.mode == "min" else -value)
            del self._best[self.top :]
            self._waited = self._waited + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        """True if the standard deviation of the best values is at most `std`."""
        return len(self._best) == self.top and _std(self._best) <= self.std

    def stop_all(self) -> bool:
        return self.has_plateaued() and self._waited >= self.patience


class FunctionStopper(Stopper):
    """Makes a function of (trial_id, result) a Stopper. Raises InvalidConfig for anything else."""

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        if not self.is_valid_function(function):
            raise InvalidConfig(
                f"FunctionStopper takes a function of (trial_id, result), not {function!r:.100}"
            )
        self.function = function

    @classmethod
    def is_valid_function(cls, fn: object) -> bool:
        """True if `fn` can be called and is not a Stopper, which needs no wrapping."""
        is_stopper = isinstance(fn, Stopper) or (isinstance(fn, type) and issubclass(fn, Stopper))
        return callable(fn) and not is_stopper

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self.function(trial_id, result))


class CombinedStopper(Stopper):
    """Ends a trial, or the experiment, when any of its Stoppers does. Each of them sees every
    report.

    Raises InvalidConfig for an argument that is not a Stopper.
    """

    def __init__(self, *stoppers: Stopper) -> None:
        for one in stoppers:
            if not isinstance(one, Stopper):
                raise InvalidConfig(
                    f"CombinedStopper takes Stopper objects, not {one!r:.100}. Wrap a function in "
                    "FunctionStopper(function); for a bound on training_iteration pass "
                    "MaximumIterationStopper(bound)"
                )
        self.stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        # Each of them must see the report, even after one has returned True.
        answers = [bool(one(trial_id, result)) for one in self._asked]
        return any(answers)

    def stop_all(self) -> bool:
        answers = [bool(one.stop_all()) for one in self._asked]
        return any(answers)

    @property
    def _asked(self) -> Sequence[Stopper]:
        """The stoppers without those whose time the machine counts."""
        return [one for one in self.stoppers if type(one) is not TimeoutStopper]


def timeout_of(stop: object) -> float | None:
    """The seconds after which `stop` ends the experiment by time alone; None if it does not.

    The machine counts them.
    """
    found = [one.timeout_s for one in _flat(stop) if type(one) is TimeoutStopper]
    return min(found, default=None)


def bounds_of(stop: object) -> dict[str, float]:
    """The bounds in `stop` that the machine checks itself, like those of a dict."""
    if isinstance(stop, Mapping):
        return {name: plain_number(bound) for name, bound in stop.items()}
    found = [one.max_iter for one in _flat(stop) if type(one) is MaximumIterationStopper]
    return {"training_iteration": min(found)} if found else {}


def is_asked(stop: object) -> bool:
    """True if `stop` must be called with reports, because the machine cannot decide it alone."""
    known = (MaximumIterationStopper, TimeoutStopper, NoopStopper)
    return any(type(one) not in known for one in _flat(stop))


def ends_all(stop: object) -> bool:
    """True if `stop` could ever end the whole experiment."""
    found = [one for one in _flat(stop) if isinstance(one, Stopper)]
    return any(type(one).stop_all is not Stopper.stop_all for one in found)


def is_users_own(stop: object) -> bool:
    """True if `stop` contains the user's own code, of which `text_of` shows only the name."""
    several = _flat(stop)
    return any(type(one).__module__ != __name__ or type(one) is FunctionStopper for one in several)


def watched_by(stop: object) -> tuple[str, ...]:
    """The metrics that holdfast's own stoppers in `stop` need."""
    kinds = (TrialPlateauStopper, ExperimentPlateauStopper)
    return tuple(dict.fromkeys(one.metric for one in _flat(stop) if isinstance(one, kinds)))


def text_of(stop: object) -> str:
    """A stop condition as the user might have written it; the user's own code only by its name."""
    if stop is None or isinstance(stop, Mapping):
        return repr(dict(stop or {}))
    if type(stop) is FunctionStopper:
        return f"FunctionStopper({_named(stop.function)})"
    if type(stop) is CombinedStopper:
        return f"CombinedStopper({', '.join(map(text_of, stop.stoppers))})"
    if type(stop) is TimeoutStopper:
        return f"TimeoutStopper({stop.timeout_s:g})"
    if type(stop).__module__ == __name__:
        pairs = (f"{name}={value!r}" for name, value in vars(stop).items() if name[0] != "_")
        return f"{type(stop).__name__}({', '.join(pairs)})"
    return _named(stop)


def _named(stop: object) -> str:
    return getattr(stop, "__qualname__", None) or type(stop).__qualname__


def _flat(stop: object) -> Sequence[object]:
    """`stop` itself, or the stoppers that it combines."""
    if type(stop) is CombinedStopper:
        return [part for one in stop.stoppers for part in _flat(one)]
    return () if stop is None or isinstance(stop, Mapping) else (stop,)


def _value(result: Mapping[str, Any], metric: str) -> float:
    """The value of `metric`; NaN if it is missing or not a finite number."""
    value = finite_number(lookup(result, metric))
    return math.nan if value is None else value


def _std(values: Sequence[float]) -> float:
    """The population standard deviation; NaN if a value is NaN."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def _require(condition: bool, name: str, what: str, given: object) -> None:
    if not condition:
        raise InvalidConfig(f"{name} must be {what}, not {given!r:.100}")


def _count(name: str, value: object, least: int) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
    _require(fits, name, f"a whole number, {least} or more", value)
    assert isinstance(value, int)
    return value


def _number(name: str, value: object, what: str, given: object = None) -> float:
    shown = value if given is None else given
    _require(is_finite(value), name, what, shown)
    assert is_finite(value)
    return float(value)


def _name(metric: object) -> str:
    is_name = isinstance(metric, str) and metric != ""
    _require(is_name, "metric", "the name of a reported value", metric)
    return str(metric)
