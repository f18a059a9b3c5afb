"""Schedulers and search algorithms by their short names, as in `TuneConfig(scheduler="asha")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from holdfast.compat import ray_path
from holdfast.plain_numbers import Unset
from holdfast.scheduler.policy import TrialScheduler
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher, SearchPlan
from holdfast.text.values import counted
from holdfast.trial.config import TuneConfig
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.metrics import near_text
from holdfast.trial.search_space.variants import Space
from holdfast.trial.space import is_searched

_RANDOM_TRIALS = 30

# Public names of holdfast.tune.schedulers.
_SCHEDULERS = {
    "auto": "AutoScheduler",
    "fifo": "FIFOScheduler",
    "asha": "ASHAScheduler",
    "async_hyperband": "AsyncHyperBandScheduler",
    "asynchyperband": "AsyncHyperBandScheduler",
    "median_stopping_rule": "MedianStoppingRule",
    "medianstopping": "MedianStoppingRule",
    "hyperband": "HyperBandScheduler",
    "hb_bohb": "HyperBandForBOHB",
    "dehb": "DEHBScheduler",
    "pbt": "PopulationBasedTraining",
    "pbt_replay": "PopulationBasedTrainingReplay",
    "pb2": "PB2",
    "pasha": "PASHAScheduler",
    "mo_asha": "MultiObjectiveASHAScheduler",
    "resource_changing": "ResourceChangingScheduler",
}
# Public names of holdfast.tune.search.
_SEARCHERS = {
    "auto": "AutoSearch",
    "ax": "AxSearch",
    "bayesopt": "BayesOptSearch",
    "bohb": "TuneBOHB",
    "dehb": "DEHBSearch",
    "hebo": "HEBOSearch",
    "hyperopt": "HyperOptSearch",
    "nevergrad": "NevergradSearch",
    "optuna": "OptunaSearch",
    "random": "BasicVariantGenerator",
    "variant_generator": "BasicVariantGenerator",
    "zoopt": "ZOOptSearch",
}
# Samplers and pruners of Optuna, by the names that people use.
_SAMPLER = "tune.search.OptunaSearch(sampler=optuna.samplers.{}())"
_ELSEWHERE = {
    "cmaes": _SAMPLER.format("CmaEsSampler"),
    "cma-es": _SAMPLER.format("CmaEsSampler"),
    "gp": _SAMPLER.format("GPSampler"),
    "grid": "tune.grid_search([...]) in param_space, without a search_alg",
    "hyperband_pruner": "'hyperband'",
    "median": "'median_stopping_rule'",
    "nsga2": _SAMPLER.format("NSGAIISampler"),
    "nsgaii": _SAMPLER.format("NSGAIISampler"),
    "successive_halving": "'asha'",
    "tpe": f"'optuna', whose sampler is TPE, or {_SAMPLER.format('TPESampler')}",
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """The scheduler with this short name, made with `kwargs`.

    Raises InvalidConfig for an unknown name, and the exceptions of the class for `kwargs`.
    """
    made: TrialScheduler = scheduler_class(scheduler)(**kwargs)
    return made


def scheduler_class(scheduler: str) -> type[TrialScheduler]:
    """The class of the scheduler with this short name. Raises InvalidConfig."""
    kind: type[TrialScheduler] = _named(
        scheduler, _SCHEDULERS, "holdfast.tune.schedulers", "scheduler"
    )
    return kind


def create_searcher(search_alg: str, **kwargs: Any) -> Searcher | BasicVariantGenerator:
    """The search algorithm with this short name, made with `kwargs`.

    Raises InvalidConfig for an unknown name, ImportError if its library is missing.
    """
    return searcher_class(search_alg)(**kwargs)


def searcher_class(search_alg: str) -> type[Searcher] | type[BasicVariantGenerator]:
    """The class of the search algorithm with this short name. Raises InvalidConfig."""
    kind: type[Searcher] | type[BasicVariantGenerator] = _named(
        search_alg, _SEARCHERS, "holdfast.tune.search", "search algorithm"
    )
    return kind


def with_algorithms(tune: TuneConfig, space: Mapping[str, Any] | None) -> tuple[TuneConfig, str]:
    """A copy in which objects replace the short names of `search_alg` and `scheduler`; and, for
    the user, what the automatic ones choose for this space. None: the space is not known, so an
    automatic search chooses nothing yet.

    Raises InvalidConfig for an unknown name, ImportError if a library is missing.
    """
    search, scheduler, samples = tune.search_alg, tune.scheduler, tune.num_samples
    if isinstance(search, str):
        search = create_searcher(search)
    if isinstance(scheduler, str):
        scheduler = create_scheduler(scheduler, **_settings_of(scheduler))
    plans, plan = [], None
    if isinstance(search, Searcher) and space is not None:
        search, plan = planned(search, tune.search_alg, space)
    if plan is not None:
        plans.append(plan.told)
        is_timed = tune.budget_seconds is not None
        if isinstance(samples, Unset) and is_timed and plan.trials > 1:
            samples = -1
            plans.append("there are as many trials as the time allows")
        elif isinstance(samples, Unset):
            samples = plan.trials
            why = "" if is_timed else ", because neither num_samples nor a budget is given"
            trials = counted(samples, "trial", "trials")
            plans.append(f"there {'is' if samples == 1 else 'are'} {trials}{why}")
        if is_timed and search is not None:
            plans.append("a slow config must promise more")
    elif isinstance(samples, Unset) and tune.budget is not None and _is_endless(search, space):
        samples = -1
    if isinstance(scheduler, TrialScheduler) and scheduler.plan:
        plans.append(scheduler.plan)
    told = f"auto: {'; '.join(plans)}" if plans else ""
    return replace(tune, search_alg=search, scheduler=scheduler, num_samples=samples), told


def _is_endless(search: Any, space: Mapping[str, Any] | None) -> bool:
    """True if there is always a further config: a `budget` then says how many trials there are."""
    if search is not None or space is None:
        return isinstance(search, Searcher)
    return is_searched(dict(space)) and Space(space).total(1) == 1


def _settings_of(scheduler: str) -> Mapping[str, Any]:
    """The settings of a scheduler that the user has only named: those of its class, but for
    ASHA."""
    if scheduler.lower() != "asha" or ray_path.is_active():
        return {}
    from holdfast.scheduler.policies.asha import LADDER

    return LADDER


def planned(
    search: Searcher, given: object, space: Mapping[str, Any]
) -> tuple[Searcher | None, SearchPlan | None]:
    """The search and its plan; None, which is random search, for a search that the user has only
    named (`given` is its name) and that cannot search the space. Raises InvalidSearchSpace."""
    try:
        return search, search.plan(space)
    except InvalidSearchSpace as error:
        if not isinstance(given, str):
            raise
        told = f"random and grid search, because {error}"
        trials = _RANDOM_TRIALS if is_searched(dict(space)) else 1
        return None, SearchPlan(told=told, trials=trials)


def _named(name: object, known: Mapping[str, str], package: str, what: str) -> Any:
    """The class of `package` that `known` lists under a name, ignoring case.

    Raises InvalidConfig for an unknown name; the message lists similar ones.
    """
    found = known.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        if instead := _ELSEWHERE.get(name.lower() if isinstance(name, str) else ""):
            raise InvalidConfig(
                f"there is no {what} {name!r}, only {', '.join(known)}: write {instead}"
            )
        near = near_text([name], known) if isinstance(name, str) else ""
        raise InvalidConfig(f"there is no {what} {name!r}, only {', '.join(known)}.{near}")
    return getattr(import_module(package), found)
