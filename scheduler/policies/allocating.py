"""Allocation functions: they decide which resources each trial gets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.described import Described
from holdfast.scheduler.policies.goal import Goal
from holdfast.trial.errors import require
from holdfast.trial.resources import PlacementGroupFactory, validated
from holdfast.trial.tuning import MODES

# Amounts are multiples of a ten-thousandth.
_LEAST = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingTrial:
    """A trial that runs or waits for resources, as an allocation function sees it.

    `placement_group_factory` holds the resources that it requests now, `base_resources` those that
    it began with. `last_result` has its iteration and the metric by which trials are compared.
    Only the trial that has just reported has its `config`.
    """

    trial_id: str
    status: str
    placement_group_factory: PlacementGroupFactory
    base_resources: PlacementGroupFactory
    last_result: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """All trials that share the machine, in the order in which they were suggested.

    `total_resources` are the resources to share. `expected` is the number of further trials that
    may run at the same time; None if only the resources limit it.
    """

    trials: Sequence[SharingTrial]
    total_resources: Mapping[str, float]
    expected: int | None = 0

    def get_trials(self) -> list[SharingTrial]:
        return list(self.trials)

    get_live_trials = get_trials

    @property
    def _resource_updater(self) -> Self:
        """The example of Ray's documentation asks this for `get_num_cpus()`."""
        return self

    def get_num_cpus(self) -> float:
        return self.total_resources.get("CPU", 0)

    def get_num_gpus(self) -> float:
        return self.total_resources.get("GPU", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingTerms:
    """Settings of the scheduler. `base_trial_resources` is what the trial in question began
    with."""

    base_trial_resources: PlacementGroupFactory
    metric: str | None = None
    mode: str | None = None

    @property
    def _base_trial_resources(self) -> PlacementGroupFactory:
        """So the example of Ray's documentation names it."""
        return self.base_trial_resources


Allocated = PlacementGroupFactory | Mapping[str, float] | None
AllocationFunction = Callable[[Any, Any, Mapping[str, Any], Any], Allocated]


class DistributeResources(Described):
    """Gives free resources to all trials in equal shares.

    Each trial has at least the resources that it began with, plus an equal number of steps of
    `increase_by`; if they cannot be shared evenly, the trials suggested first get one step more.
    By default `increase_by` is one CPU; for trials that use GPUs it is one GPU and the machine's
    number of CPUs per GPU. A trial gets at most `increase_by_times` steps (-1: no limit).
    `reserve_resources` are never given away. With `add_bundles` the trial gets more bundles of
    that size, for a worker group; otherwise its first bundle grows.

    It is called for one trial, after that trial has reported. As long as the search may suggest
    trials, free resources are kept for them, except what remains when `max_concurrent_trials` run.
    A trial grows only by what is free at that moment: the others return their surplus when they
    report.

    Raises InvalidConfig.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        name = type(self).__name__
        self._step = validated(increase_by or {}, where=f"{name}(increase_by=...)")
        self._reserve = validated(reserve_resources or {}, where=f"{name}(reserve_resources=...)")
        require(
            not increase_by or any(self._step.values()),
            f"{name}(increase_by={increase_by!r}): pass an amount above 0",
        )
        require(
            type(increase_by_times) is int,
            f"{name}(increase_by_times={increase_by_times!r}): pass a whole number",
        )
        self._add_bundles = add_bundles
        self._most = increase_by_times if increase_by_times > 0 else None

    def __call__(
        self,
        tune_controller: Sharing,
        trial: SharingTrial,
        result: Mapping[str, Any],
        scheduler: SharingTerms,
    ) -> PlacementGroupFactory:
        """The resources that `trial` should have."""
        step = self._step or _step(trial.base_resources, tune_controller.total_resources)
        if tune_controller.expected is None:
            wanted = 0
        else:
            wanted = self._steps(tune_controller, trial, step, scheduler)
        steps = min(wanted, self._free_now(tune_controller, trial, step))
        if self._most is not None:
            steps = min(steps, self._most)
        return self._grown(trial.base_resources, step, steps)

    def _steps(
        self,
        sharing: Sharing,
        trial: SharingTrial,
        step: Mapping[str, float],
        terms: SharingTerms,
    ) -> int:
        """How many times `step` the trial should have in the long run."""
        assert sharing.expected is not None
        count = len(sharing.trials) + sharing.expected
        each, more = divmod(self._all_steps(sharing, trial, step), count)
        place = [one.trial_id for one in sharing.trials].index(trial.trial_id)
        return each + (place < more)

    def _all_steps(self, sharing: Sharing, trial: SharingTrial, step: Mapping[str, float]) -> int:
        """How many steps there are for all trials, if each has the resources that it began
        with."""
        held = [one.base_resources for one in sharing.trials]
        held += [trial.base_resources] * (sharing.expected or 0)
        return self._left(sharing, held, step)

    def _free_now(self, sharing: Sharing, trial: SharingTrial, step: Mapping[str, float]) -> int:
        """How many steps are free while the other trials keep what they have."""
        held = [
            one.placement_group_factory for one in sharing.trials if one.trial_id != trial.trial_id
        ]
        return self._left(sharing, [*held, trial.base_resources], step)

    def _left(
        self,
        sharing: Sharing,
        held: Sequence[PlacementGroupFactory],
        step: Mapping[str, float],
    ) -> int:
        amounts = [*(one.required_resources for one in held), self._reserve]
        fitting = [
            (sharing.total_resources.get(key, 0.0) - sum(one.get(key, 0.0) for one in amounts))
            / amount
            for key, amount in step.items()
            if amount
        ]
        return max(0, math.floor(min(fitting) + _LEAST))

    def _grown(
        self, base: PlacementGroupFactory, step: Mapping[str, float], steps: int
    ) -> PlacementGroupFactory:
        if not steps:
            return base
        first, *others = base.bundles
        if self._add_bundles:
            others += [dict(step)] * steps
        else:
            keys = dict.fromkeys((*first, *step))
            first = {
                key: round(first.get(key, 0.0) + steps * step.get(key, 0.0), 4) for key in keys
            }
        return PlacementGroupFactory([first, *others], base.strategy)


class DistributeResourcesToTopJob(DistributeResources):
    """Gives free resources to the best trial; the others have what they began with.

    The best is the trial with the best newest report of the metric (`metric` and `mode`: by
    default those of the base scheduler, or of TuneConfig). The other parameters are those of
    DistributeResources.

    Raises InvalidConfig.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        name = type(self).__name__
        require(mode is None or mode in MODES, f"{name}(mode={mode!r}): pass 'min' or 'max'")
        self.metric, self.mode = metric, mode

    def _steps(
        self,
        sharing: Sharing,
        trial: SharingTrial,
        step: Mapping[str, float],
        terms: SharingTerms,
    ) -> int:
        metric, mode = self.metric or terms.metric, self.mode or terms.mode
        if metric is None or mode is None:
            return 0
        goal = Goal(metric=metric, mode=mode, time_attr="")
        values = {one.trial_id: goal.value(one.last_result) for one in sharing.trials}
        known = {key: value for key, value in values.items() if value is not None}
        best = max(known, key=known.__getitem__, default=None)
        return self._all_steps(sharing, trial, step) if best == trial.trial_id else 0


EvenlyDistributeCPUsGPUs = DistributeResources


def _step(base: PlacementGroupFactory, total: Mapping[str, float]) -> dict[str, float]:
    gpus = total.get("GPU", 0.0)
    if not base.required_resources.get("GPU") or not gpus:
        return {"CPU": 1.0}
    return {"CPU": float(total.get("CPU", 0.0) // gpus), "GPU": 1.0}
