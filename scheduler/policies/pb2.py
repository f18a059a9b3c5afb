"""Population based training in which a bandit chooses the new configs.

The bandit is a Gaussian process over configs and time, and the config with the highest upper
bound. It is in plain Python: for at most a hundred points (0.3 s at 60), importing a library would
take longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_finite
from holdfast.scheduler.policies.goal import Chance
from holdfast.scheduler.policies.population import (
    Path,
    Population,
    Proposal,
    has_room,
    is_lacking,
    put,
)
from holdfast.scheduler.policy import View
from holdfast.trial.errors import require
from holdfast.trial.space import Random
from holdfast.trial.trial import Trial
from holdfast.trial.values import key_name, unwrap_scalar, value_at

Vector = Sequence[float]

# The length scales and forgetting rates to try: the kernel with the highest likelihood wins.
_LENGTHS = (0.1, 0.2, 0.4, 0.8)
_FORGETTING = (0.0, 0.01, 0.1)
_NOISE = 0.01
# The paper's exploration weight beta = _C1 + log(_C2 * n), at least _C1.
_C1, _C2 = 0.2, 0.4
_STARTS, _STEPS = 60, 60


class Measurement(NamedTuple):
    """A measured point: `time` in intervals, and `place` with coordinates from 0 to 1."""

    time: float
    place: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The covariance of two points: squared exponential in place, times (1 - forgetting) **
    (distance in time / 2)."""

    length: float
    forgetting: float

    def __call__(self, one: Measurement, other: Measurement) -> float:
        apart = math.dist(one.place, other.place) / self.length
        alike = math.exp(-0.5 * apart * apart)
        if self.forgetting:
            alike *= (1 - self.forgetting) ** (abs(one.time - other.time) / 2)
        return alike


class Process:
    """A Gaussian process conditioned on the standardized `values` at `points`."""

    def __init__(self, kernel: Kernel, points: Sequence[Measurement], values: Vector = ()) -> None:
        self._kernel = kernel
        self._points = points
        rows = [[kernel(a, b) for b in points[: i + 1]] for i, a in enumerate(points)]
        for i, row in enumerate(rows):
            row[i] += _NOISE
        self._root = cholesky(rows)
        self._whitened = forward(self._root, values) if values else []
        self._weights = backward(self._root, self._whitened)

    @property
    def likelihood(self) -> float:
        """The log likelihood of the values, up to a constant."""
        fit = -0.5 * math.fsum(map(mul, self._whitened, self._whitened))
        return fit - math.fsum(math.log(row[-1]) for row in self._root)

    def mean(self, point: Measurement) -> float:
        return math.fsum(map(mul, self._alike(point), self._weights))

    def deviation(self, point: Measurement) -> float:
        whitened = forward(self._root, self._alike(point))
        return math.sqrt(max(1e-12, 1.0 - math.fsum(map(mul, whitened, whitened))))

    def _alike(self, point: Measurement) -> list[float]:
        return [self._kernel(known, point) for known in self._points]


def likeliest(points: Sequence[Measurement], values: Vector) -> Kernel:
    """The kernel with the highest likelihood of the standardized values."""
    kernels = [Kernel(length=a, forgetting=b) for a in _LENGTHS for b in _FORGETTING]
    return max(kernels, key=lambda kernel: Process(kernel, points, values).likelihood)


def most_promising(
    points: Sequence[Measurement],
    values: Vector,
    running: Sequence[Measurement],
    *,
    now: float,
    context: Vector,
    size: int,
    chance: Random,
) -> tuple[float, ...]:
    """The point, of `size` coordinates from 0 to 1, with the highest upper confidence bound.

    The mean is fitted to `values` at `points`. The deviation counts the `running` points as
    measured, so that points chosen at the same time differ. The first coordinates of the place are
    the fixed `context`. Without values the point is uniform.
    """
    if not values:
        return tuple(chance.random() for _ in range(size))
    standard = standardized(values)
    kernel = likeliest(points, standard)
    known = Process(kernel, points, standard)
    busy = Process(kernel, [*points, *running])
    width = math.sqrt(_C1 + max(0.0, math.log(_C2 * len(points))))

    def bound(chosen: Vector) -> float:
        point = Measurement(now, (*context, *chosen))
        return known.mean(point) + width * busy.deviation(point)

    drawn = [tuple(chance.random() for _ in range(size)) for _ in range(_STARTS)]
    best = max(drawn, key=bound)
    highest = bound(best)
    for step in range(_STEPS):
        reach = 0.25 * 0.93**step
        near = tuple(min(1.0, max(0.0, x + reach * (2 * chance.random() - 1))) for x in best)
        if (found := bound(near)) > highest:
            best, highest = near, found
    return best


def standardized(values: Vector) -> list[float]:
    """The values with mean 0 and deviation 1; all 0 if they are equal."""
    # The squares of huge values, from trials that nearly diverged, would overflow.
    largest = max(map(abs, values)) or 1.0
    parts = [value / largest for value in values]
    mean = math.fsum(parts) / len(parts)
    spread = math.sqrt(math.fsum((part - mean) ** 2 for part in parts) / len(parts))
    return [(part - mean) / spread if spread > 1e-12 * abs(mean) else 0.0 for part in parts]


def cholesky(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """The Cholesky factor of a positive definite matrix; `rows` is its lower half."""
    root: list[list[float]] = []
    for i, row in enumerate(rows):
        made: list[float] = []
        for j in range(i):
            made.append((row[j] - sum(map(mul, made, root[j]))) / root[j][j])
        made.append(math.sqrt(max(1e-12, row[i] - sum(map(mul, made, made)))))
        root.append(made)
    return root


def forward(root: Sequence[Sequence[float]], values: Vector) -> list[float]:
    """Solve root x = values for x."""
    found: list[float] = []
    for row, value in zip(root, values, strict=True):
        found.append((value - sum(map(mul, row, found))) / row[-1])
    return found


def backward(root: Sequence[Sequence[float]], values: Vector) -> list[float]:
    """Solve (root transposed) x = values for x."""
    left, found = list(values), [0.0] * len(values)
    for i in range(len(values) - 1, -1, -1):
        found[i] = left[i] / root[i][i]
        row = root[i]
        for j in range(i):
            left[j] -= row[j] * found[i]
    return found


# Older points are dropped: the kernel forgets with time, so they would count for little.
_MOST_POINTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    path: Path
    low: float
    high: float

    def share(self, config: Mapping[str, Any]) -> float | None:
        """The position of the value between the bounds, from 0 to 1; None if it is not a
        number."""
        value = unwrap_scalar(value_at(config, self.path))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def put(self, config: Mapping[str, Any], share: float) -> dict[str, Any]:
        """A copy of `config` with the value at this position; a whole number stays whole."""
        value: float = min(self.high, max(self.low, self.low + share * (self.high - self.low)))
        known = value_at(config, self.path)
        if isinstance(known, int) and not isinstance(known, bool):
            value = min(math.floor(self.high), max(math.ceil(self.low), round(value)))
        return put(config, self.path, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The rate at which a trial improved until `time`.

    `before` is the score at the start, `shares` the positions of the parameters between their
    bounds, `rate` the improvement per unit of time.
    """

    time: float
    before: float
    shares: tuple[float, ...]
    rate: float


class PB2(Population):
    """PopulationBasedTraining in which a model chooses the new configs.

    A time-varying Gaussian process learns from all trials how fast the score improves under which
    parameters, and its upper confidence bound chooses the next ones. It needs far fewer trials.

    `hyperparam_bounds` maps each parameter to its lowest and highest value, in nested dicts as in
    the config. Parameters that `param_space` lacks are drawn uniformly between their bounds before
    a trial starts. The other parameters are those of `PopulationBasedTraining`.

    Parker-Holder, Nguyen, Roberts, "Provably Efficient Online Hyperparameter Optimization with
    Population-Based Bandits" (2020).

    Raises InvalidConfig.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(
            time_attr,
            metric,
            mode,
            perturbation_interval=perturbation_interval,
            burn_in_period=0.0,
            quantile_fraction=quantile_fraction,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        self._bounds = tuple(_bounds(hyperparam_bounds or {}, ()))
        require(
            bool(self._bounds),
            "PB2(hyperparam_bounds=None): pass the lowest and the highest value of each "
            "parameter to change, such as {'lr': [1e-4, 1e-1]}",
        )
        self._gains: list[Gain] = []
        # The time at which each trial was last compared and its score then; after an exploit,
        # those of the source.
        self._known: dict[str, tuple[float, float]] = {}

    def first(self, config: Mapping[str, Any], chance: Chance) -> Proposal | None:
        lacking = [bound for bound in self._bounds if is_lacking(config, bound.path)]
        for bound in lacking:
            config = bound.put(config, chance.random())
        return Proposal(config=config) if lacking else None

    def note(self, trial: Trial, time: float, score: float) -> None:
        then, before = self._known.pop(trial.trial_id, (time, score))
        if not math.isfinite(score):
            return
        self._known[trial.trial_id] = (time, score)
        shares = self._shares(trial.config)
        if time > then and shares is not None:
            rate = (score - before) / (time - then)
            if math.isfinite(rate):
                self._gains.append(Gain(time=time, before=before, shares=shares, rate=rate))
            del self._gains[:-_MOST_POINTS]

    def note_takeover(self, trial_id: str, source: str) -> None:
        self._known[trial_id] = self._known[source]

    def next(self, view: View, trial_id: str, source: str, chance: Chance) -> Proposal:
        """A proposal whose config `completed` computes in another thread, because fitting takes
        time."""
        others = [
            trial.config
            for trial in view.trials.values()
            if trial.trial_id != trial_id and not trial.status.is_final
        ]
        time, before = self._known[source]
        asked = {
            "gains": [[g.time, g.before, list(g.shares), g.rate] for g in self._gains],
            "running": [list(shares) for one in others if (shares := self._shares(one))],
            "time": time,
            "before": before,
            "chance": chance.name,
        }
        return Proposal(config=view.trials[source].config, asked=asked)

    def completed(self, config: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        gains = [Gain(time=t, before=b, shares=tuple(s), rate=r) for t, b, s, r in asked["gains"]]
        scores = [gain.before for gain in gains] + [asked["before"]]
        lowest, reach = min(scores), (max(scores) - min(scores)) or 1.0

        def point(time: float, before: float, shares: Sequence[float]) -> Measurement:
            return Measurement(time / self._interval, ((before - lowest) / reach, *shares))

        now, before = asked["time"], asked["before"]
        chosen = most_promising(
            [point(gain.time, gain.before, gain.shares) for gain in gains],
            [gain.rate for gain in gains],
            [point(now, before, shares) for shares in asked["running"]],
            now=now / self._interval,
            context=((before - lowest) / reach,),
            size=len(self._bounds),
            chance=Chance(asked["chance"]),
        )
        for bound, share in zip(self._bounds, chosen, strict=True):
            if has_room(config, bound.path):
                config = bound.put(config, share)
        return config

    def _shares(self, config: Mapping[str, Any]) -> tuple[float, ...] | None:
        found = [bound.share(config) for bound in self._bounds]
        shares = tuple(share for share in found if share is not None)
        return shares if len(shares) == len(found) else None


def _bounds(given: Mapping[str, Any], above: Path) -> Iterator[Bound]:
    """The bound of each parameter. Raises InvalidConfig."""
    require(
        isinstance(given, Mapping),
        f"PB2(hyperparam_bounds={given!r:.80}): pass a dict such as {{'lr': [1e-4, 1e-1]}}",
    )
    for key, value in given.items():
        path = (*above, key)
        if isinstance(value, Mapping) and value:
            yield from _bounds(value, path)
            continue
        fits = isinstance(value, (list, tuple)) and len(value) == 2
        require(
            fits and all(map(is_finite, value)) and value[0] < value[1],
            f"PB2(hyperparam_bounds=...): {key_name(path)} is {value!r:.80}; pass the lowest and "
            "the highest value, two numbers",
        )
        yield Bound(path=path, low=value[0], high=value[1])
