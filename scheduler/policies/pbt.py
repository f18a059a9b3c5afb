"""Population based training as published: parameters are resampled or perturbed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from holdfast.plain_numbers import plain_number
from holdfast.scheduler.chance import Chance
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.exploring import (
    Mutation,
    Proposal,
    explore,
    fill,
    mutations_of,
    put,
)
from holdfast.scheduler.policies.goal import check_number, is_finite_number
from holdfast.scheduler.policies.population import Population
from holdfast.scheduler.policy import View
from holdfast.trial.errors import require


class PopulationBasedTraining(Population):
    """Trains a population in parallel; the worst trials copy the best and change their configs.

    At each `perturbation_interval`, measured in `time_attr`, a trial among the worst continues
    from the checkpoint of one of the best, with a config close to that trial's.

    The worst and the best are `quantile_fraction` of the population each, by their newest scores.
    `hyperparam_mutations` says how each parameter changes, in nested dicts as in the config. With
    `resample_probability` it is drawn again. Otherwise a value of a list (or of `tune.choice`)
    becomes the one before or after it there, and a number of a domain or of a function is
    multiplied by one of the `perturbation_factors`, and stays within its domain. Parameters that
    `param_space` lacks are drawn before a trial starts. `custom_explore_fn(config)` may change
    each new config last.

    Nothing changes before `burn_in_period`. If there are more trials than resources, they take
    turns, one interval each. With `synch`, all trials wait for each other at each interval and
    then change together. `log_config` writes `pbt_global.txt` and `pbt_policy_<trial_id>.txt`,
    from which `PopulationBasedTrainingReplay` can train one trial again. Without `require_attrs`,
    reports that lack the metric or the time are skipped.

    Jaderberg, Dalibard, Osindero, Czarnecki, Donahue, Razavi, Vinyals, Green, Dunning, Simonyan,
    Fernando, Kavukcuoglu, "Population Based Training of Neural Networks" (2017).

    Raises InvalidConfig.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        super().__init__(
            time_attr,
            metric,
            mode,
            perturbation_interval=perturbation_interval,
            burn_in_period=burn_in_period,
            quantile_fraction=quantile_fraction,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        name = type(self).__name__
        check_number(self, "resample_probability", resample_probability, least=0, most=1)
        is_list = isinstance(perturbation_factors, (list, tuple))
        self._factors = tuple(map(plain_number, perturbation_factors)) if is_list else ()
        fit = all(is_finite_number(factor, least=0, above=True) for factor in self._factors)
        require(
            bool(self._factors) and fit,
            f"{name}(perturbation_factors={perturbation_factors!r}): pass numbers above 0",
        )
        require(
            bool(hyperparam_mutations) or custom_explore_fn is not None,
            f"{name}(hyperparam_mutations={hyperparam_mutations!r}): no config would ever "
            "change; pass {'lr': [...]}, or a custom_explore_fn",
        )
        mutations_of(hyperparam_mutations or {})  # raises if they are not valid
        self._given = dict(hyperparam_mutations or {})
        self._mutations: tuple[Mutation, ...] = ()
        self._resample_probability = resample_probability

    def begun(self, spec: ExperimentSpec) -> Self:
        fresh = super().begun(spec)
        fresh._mutations = mutations_of(fresh._given)
        return fresh

    def first(self, config: Mapping[str, Any], chance: Chance) -> Proposal | None:
        filled = fill(config, self._mutations, chance)
        return None if filled == Proposal(config=dict(config)) else filled

    def next(self, view: View, trial_id: str, source: str, chance: Chance) -> Proposal:
        return explore(
            view.trials[source].config,
            self._mutations,
            chance,
            resample_probability=self._resample_probability,
            factors=self._factors,
        )

    def completed(self, config: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
        wanted = set(asked.get("functions", ()))
        for mutation in self._mutations:
            if mutation.name in wanted:
                config = put(config, mutation.path, mutation.ask(config))
        return config
