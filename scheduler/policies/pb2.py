"""Population based training in which a bandit chooses the new configs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.scheduler.chance import Chance
from holdfast.scheduler.policies.bandit import Measurement, most_promising
from holdfast.scheduler.policies.exploring import Path, Proposal, get, has_room, is_lacking, put
from holdfast.scheduler.policies.goal import is_finite_number
from holdfast.scheduler.policies.population import Population
from holdfast.scheduler.policy import View
from holdfast.trial.errors import require
from holdfast.trial.trial import Trial
from holdfast.trial.values import key_name, unwrap_scalar

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
        value = unwrap_scalar(get(config, self.path))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def put(self, config: Mapping[str, Any], share: float) -> dict[str, Any]:
        """A copy of `config` with the value at this position; a whole number stays whole."""
        value: float = min(self.high, max(self.low, self.low + share * (self.high - self.low)))
        known = get(config, self.path)
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
            fits
            and all(is_finite_number(one, least=-math.inf) for one in value)
            and value[0] < value[1],
            f"PB2(hyperparam_bounds=...): {key_name(path)} is {value!r:.80}; pass the lowest and "
            "the highest value, two numbers",
        )
        yield Bound(path=path, low=value[0], high=value[1])
