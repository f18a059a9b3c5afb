"""Learning curves of simulated trials: functions of the config, or trainings with a state."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from holdfast.experiment.worker.metrics import plain_metrics
from holdfast.trial.errors import InvalidConfig, TuneError

# One report: a dict as for `tune.report`, the metric alone, or None at the end of the training.
Report = Mapping[str, Any] | float | None
CurveFunction = Callable[[dict[str, Any], int], Report]
Seconds = float | Callable[..., float]


class CurveFailed(TuneError):
    """The user's curve raised, or did not return a report; the message names the trial."""


@runtime_checkable
class Curve(Protocol):
    """A training with a state, for results that depend on the history, not only on the config.

    A checkpoint is a state: a trial that resumes from one, its own or another's, gets the same
    object. So `step` must return a new state and not change its argument.
    """

    def begin(self, config: dict[str, Any]) -> Any:
        """The state before the first iteration."""
        ...

    def step(self, state: Any, config: dict[str, Any]) -> tuple[Any, Report]:
        """The state after another iteration, and its report; None ends the training."""
        ...


class FunctionCurve:
    """A curve as a function of config and iteration (from 1); its state is the iteration."""

    def __init__(self, function: CurveFunction) -> None:
        self._function = function

    def begin(self, config: dict[str, Any]) -> int:
        return 0

    def step(self, state: int, config: dict[str, Any]) -> tuple[int, Report]:
        return state + 1, self._function(config, state + 1)


def curve_of(given: Curve | CurveFunction) -> Curve:
    """Raises InvalidConfig if `given` is neither a function nor has `begin` and `step`."""
    if isinstance(given, Curve):
        return given
    if callable(given):
        return FunctionCurve(given)
    raise InvalidConfig(
        f"a curve is a function of (config, iteration), or an object with begin(config) and "
        f"step(state, config), not {given!r:.100}"
    )


def metrics_of(report: Mapping[str, Any] | float, metric: str | None) -> dict[str, Any]:
    """A report as plain data. Raises InvalidMetrics, InvalidConfig."""
    if isinstance(report, Mapping):
        return dict(plain_metrics(report))
    if metric is None:
        raise InvalidConfig(
            "a curve that returns a number needs TuneConfig(metric=...), the name of that number"
        )
    return dict(plain_metrics({metric: report}))


def cost_of(seconds: Seconds) -> Callable[[dict[str, Any], int, Mapping[str, float]], float]:
    """Seconds for one iteration, by config, number and the resources that the trial holds.

    A function may take all three, the first two or only the config. Raises InvalidConfig.
    """
    if not callable(seconds):
        known = _checked(seconds)
        return lambda config, iteration, resources: known
    function, count = seconds, _arguments(seconds)
    return lambda *what: _checked(function(*what[:count]))


def _arguments(function: Callable[..., float]) -> int:
    signature = inspect.signature(function)
    for count in (3, 2, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise InvalidConfig(
        f"seconds_per_iteration: {function!r} must take (config), (config, iteration) or "
        f"(config, iteration, resources)"
    )


def _checked(seconds: Any) -> float:
    """A number, also one of NumPy, as a float."""
    try:
        number = float(seconds)
    except (TypeError, ValueError):
        raise InvalidConfig(
            f"seconds_per_iteration must be a number of seconds, not {seconds!r:.100}"
        ) from None
    if not 0 < number < math.inf:
        raise InvalidConfig(f"seconds_per_iteration must be above 0, not {number!r}")
    return number
