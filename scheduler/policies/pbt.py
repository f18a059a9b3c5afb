"""Population based training as published, and its replay by the schedule in a policy's log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import plain_number
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.goal import Chance, check_number, is_finite_number
from holdfast.scheduler.policies.population import (
    Mutation,
    Population,
    Proposal,
    explore,
    fill,
    mutations_of,
    put,
)
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
from holdfast.trial.errors import require
from holdfast.trial.values import Opaque, Ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Training starts with the config `first`; each of `changes` applies after its iteration."""

    first: Mapping[str, Any]
    changes: tuple[tuple[int, Mapping[str, Any]], ...]


class ScheduleReplay(TrialScheduler):
    """Trains one trial by a schedule: at each change it resumes from its own checkpoint."""

    changes_configs = True
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
