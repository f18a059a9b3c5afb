"""The contests of trial schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.quality.contest import Contest
from benchmarks.quality.ours import Ours
from benchmarks.tasks.domains import domains
from benchmarks.tasks.task import Field, Task
from holdfast import tune

TWENTY_FIVE = Field(workers=25, trainings=6)
POPULATION = Field(workers=16, trainings=1)
EVOLVING = ("quadratic", "batches")
REDUCTION = 3

Settings = Callable[[Task], Mapping[str, Any]]


def _scheduler(name: str, settings: Settings, **given: Any) -> Callable[[], Ours]:
    """A function that creates the scheduler; `given` goes to the TuneConfig."""

    def made() -> Ours:
        from holdfast.tune import schedulers

        kind = getattr(schedulers, name)
        return Ours(scheduler=lambda task: kind(**settings(task)), settings=given)

    return made


def _population(name: str, settings: Settings) -> Callable[[], Ours]:
    return _scheduler(name, settings, num_samples=POPULATION.workers)


def _halving(task: Task) -> dict[str, Any]:
    return {"max_t": task.epochs, "grace_period": 1, "reduction_factor": REDUCTION}


def _later_halving(task: Task) -> dict[str, Any]:
    return {**_halving(task), "grace_period": 3}


def _halving_by_two_goals(task: Task) -> dict[str, Any]:
    return {**_halving(task), "metrics": ["loss", "cost"], "modes": ["min", "min"]}


def _median(task: Task) -> dict[str, Any]:
    return {
        "time_attr": "training_iteration",
        "grace_period": 2,
        "min_samples_required": 3,
        "hard_stop": True,
    }


def _bands(task: Task) -> dict[str, Any]:
    return {"max_t": task.epochs, "reduction_factor": REDUCTION}


def _mutating(task: Task) -> dict[str, Any]:
    return {
        "time_attr": "training_iteration",
        "perturbation_interval": 4,
        "hyperparam_mutations": domains(task.space, tune),
    }


def _bandits(task: Task) -> dict[str, Any]:
    bounds = {axis.name: [axis.low, axis.high] for axis in task.space}
    return {
        "time_attr": "training_iteration",
        "perturbation_interval": 4,
        "hyperparam_bounds": bounds,
    }


def _dehb() -> Ours:
    from holdfast.tune.schedulers import DEHBScheduler
    from holdfast.tune.search import DEHBSearch

    return Ours(
        scheduler=lambda task: DEHBScheduler(),
        search=lambda task, seed: DEHBSearch(
            max_t=task.epochs, reduction_factor=REDUCTION, seed=seed
        ),
    )


def _bohb() -> Ours:
    from holdfast.tune.schedulers import HyperBandForBOHB
    from holdfast.tune.search.bohb import TuneBOHB

    return Ours(
        scheduler=lambda task: HyperBandForBOHB(**_bands(task)),
        search=lambda task, seed: TuneBOHB(seed=seed),
    )


SCHEDULERS: Sequence[Contest] = [
    Contest(
        name="ASHA",
        ours=_scheduler("ASHAScheduler", _halving),
        peers={"ray": "ASHA", "optuna": "ASHA", "syne": "ASHA"},
        paper="Li et al., 2020",
        shown_at=("ASHAScheduler",),
    ),
    Contest(
        name="ASHA, grace_period=3",
        ours=_scheduler("ASHAScheduler", _later_halving),
        tasks=("wine",),
        paper="Li et al., 2020",
    ),
    Contest(
        name="ASHA, 25 workers",
        ours=_scheduler("ASHAScheduler", _halving),
        tasks=("network", "digits", "hartmann3"),
        field=TWENTY_FIVE,
        paper="Li et al., 2020",
    ),
    Contest(
        name="HyperBand",
        ours=_scheduler("HyperBandScheduler", _bands),
        peers={"ray": "HyperBand"},
        kin={"optuna": "HyperBand"},
        paper="Li et al., 2018",
        shown_at=("HyperBandScheduler",),
    ),
    Contest(
        name="BOHB",
        ours=_bohb,
        peers={"ray": "BOHB"},
        kin={"syne": "BOHB"},
        paper="Falkner, Klein and Hutter, 2018",
        shown_at=("HyperBandForBOHB", "bohb.TuneBOHB"),
    ),
    Contest(
        name="MedianStoppingRule",
        ours=_scheduler("MedianStoppingRule", _median),
        tasks=("branin", "digits", "wine"),  # Ray's takes 10 s for a run
        peers={"ray": "median"},
        kin={"optuna": "median"},
        paper="Golovin et al., 2017",
        shown_at=("MedianStoppingRule",),
    ),
    Contest(
        name="PASHA",
        ours=_scheduler("PASHAScheduler", _halving),
        paper="Bohdal et al., 2023",
        shown_at=("PASHAScheduler",),
    ),
    Contest(
        name="DEHB",
        ours=_dehb,
        paper="Awad, Mallik and Hutter, 2021",
        shown_at=("DEHBScheduler", "DEHBSearch"),
    ),
    Contest(
        name="Multi-objective ASHA",
        ours=_scheduler("MultiObjectiveASHAScheduler", _halving_by_two_goals),
        tasks=("small network",),
        peers={"syne": "MOASHA"},
        paper="Schmucker et al., 2021",
        shown_at=("MultiObjectiveASHAScheduler",),
    ),
    Contest(
        name="PopulationBasedTraining",
        ours=_population("PopulationBasedTraining", _mutating),
        tasks=EVOLVING,
        field=POPULATION,
        peers={"ray": "PBT", "syne": "PBT"},
        paper="Jaderberg et al., 2017",
        shown_at=("PopulationBasedTraining",),
    ),
    Contest(
        name="PB2",
        ours=_population("PB2", _bandits),
        tasks=EVOLVING,
        field=POPULATION,
        peers={"ray": "PB2"},
        paper="Parker-Holder, Nguyen and Roberts, 2020",
        shown_at=("PB2",),
    ),
]
