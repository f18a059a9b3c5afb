"""Which algorithm runs where, beside whom, and what its paper says of random search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.quality.ours import Ours, domains, optuna_space
from benchmarks.tasks.task import Field, Task

RANDOM = "random search"
EIGHT = Field(workers=8, trainings=8)
TWENTY_FIVE = Field(workers=25, trainings=6)
POPULATION = Field(workers=16, trainings=1)
COMMON = ("branin", "hartmann3", "network", "digits", "wine")
EVOLVING = ("quadratic", "batches")
REDUCTION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """`peers`: the name of the same algorithm there. `kin`: of another one for the same purpose,
    which is shown beside it, and not held against it. `beats_random`: its paper says so.

    `ours` is called when it runs, and raises ImportError or AttributeError where it is not there.
    """

    name: str
    ours: Callable[[], Ours]
    tasks: Sequence[str] = COMMON
    field: Field = EIGHT
    peers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kin: Mapping[str, str] = dataclasses.field(default_factory=dict)
    beats_random: bool = True
    paper: str = ""


def _scheduler(name: str, settings: Callable[[Task], Mapping[str, Any]]) -> Callable[[], Ours]:
    def made() -> Ours:
        from holdfast.tune import schedulers

        kind = getattr(schedulers, name)
        return Ours(scheduler=lambda task: kind(**settings(task)))

    return made


def _halving(task: Task) -> dict[str, Any]:
    return {"max_t": task.epochs, "grace_period": 1, "reduction_factor": REDUCTION}


def _median(task: Task) -> dict[str, Any]:
    return {
        "time_attr": "training_iteration",
        "grace_period": 2,
        "min_samples_required": 3,
        "hard_stop": True,
    }


def _bands(task: Task) -> dict[str, Any]:
    return {"max_t": task.epochs, "reduction_factor": REDUCTION}


def _population(task: Task) -> dict[str, Any]:
    return {
        "time_attr": "training_iteration",
        "perturbation_interval": 4,
        "hyperparam_mutations": domains(task),
    }


def _bandits(task: Task) -> dict[str, Any]:
    bounds = {axis.name: [axis.low, axis.high] for axis in task.space}
    return {
        "time_attr": "training_iteration",
        "perturbation_interval": 4,
        "hyperparam_bounds": bounds,
    }


def _evolving(name: str, settings: Callable[[Task], Mapping[str, Any]]) -> Callable[[], Ours]:
    def made() -> Ours:
        from holdfast.tune import schedulers

        kind = getattr(schedulers, name)
        return Ours(
            scheduler=lambda task: kind(**settings(task)),
            settings={"num_samples": POPULATION.workers},
        )

    return made


def _generator() -> Ours:
    return Ours(uses_generator=True)


def _dehb() -> Ours:
    from holdfast.tune.schedulers import DEHBScheduler
    from holdfast.tune.search import DEHBSearch

    return Ours(
        scheduler=lambda task: DEHBScheduler(),
        search=lambda task, seed: DEHBSearch(
            max_t=task.epochs, reduction_factor=REDUCTION, seed=seed
        ),
    )


def _tpe() -> Ours:
    from holdfast.tune.search.optuna import OptunaSearch

    return Ours(
        search=lambda task, seed: OptunaSearch(space=optuna_space(task), seed=seed),
        knows_space=True,
    )


def _searching(name: str, **settings: Any) -> Callable[[], Ours]:
    def made() -> Ours:
        from holdfast.tune import search

        kind = getattr(search, name)
        return Ours(search=lambda task, seed: kind(**settings))

    return made


CONTESTS: Sequence[Contest] = [
    Contest(
        name="BasicVariantGenerator",
        ours=_generator,
        peers={"optuna": "random", "syne": "random"},
        beats_random=False,
        paper="Bergstra and Bengio, 2012",
    ),
    Contest(
        name="ASHA",
        ours=_scheduler("ASHAScheduler", _halving),
        peers={"ray": "ASHA", "optuna": "ASHA", "syne": "ASHA"},
        paper="Li et al., 2020",
    ),
    Contest(
        name="HyperBand",
        ours=_scheduler("HyperBandScheduler", _bands),
        peers={"ray": "HyperBand"},
        kin={"optuna": "HyperBand"},
        paper="Li et al., 2018",
    ),
    Contest(
        name="MedianStoppingRule",
        ours=_scheduler("MedianStoppingRule", _median),
        tasks=("branin", "digits", "wine"),  # Ray's takes 10 s for a run
        peers={"ray": "median"},
        kin={"optuna": "median"},
        paper="Golovin et al., 2017",
    ),
    Contest(
        name="PASHA",
        ours=_scheduler("PASHAScheduler", _halving),
        paper="Bohdal et al., 2023",
    ),
    Contest(
        name="DEHB",
        ours=_dehb,
        paper="Awad, Mallik and Hutter, 2021",
    ),
    Contest(
        name="OptunaSearch (TPE)",
        ours=_tpe,
        peers={"optuna": "TPE"},
        kin={"syne": "TPE"},
        paper="Bergstra et al., 2011",
    ),
    Contest(
        name="PopulationBasedTraining",
        ours=_evolving("PopulationBasedTraining", _population),
        tasks=EVOLVING,
        field=POPULATION,
        peers={"ray": "PBT", "syne": "PBT"},
        paper="Jaderberg et al., 2017",
    ),
    Contest(
        name="PB2",
        ours=_evolving("PB2", _bandits),
        tasks=EVOLVING,
        field=POPULATION,
        paper="Parker-Holder, Nguyen and Roberts, 2020",
    ),
    Contest(
        name="ASHA, 25 workers",
        ours=_scheduler("ASHAScheduler", _halving),
        tasks=("network", "digits", "hartmann3"),
        field=TWENTY_FIVE,
        paper="Li et al., 2020",
    ),
]
