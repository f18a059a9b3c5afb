"""The contestants on the external tasks: holdfast's own algorithms, and its peers'."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.quality.external import MOST
from benchmarks.quality.ours import Ours, run
from benchmarks.quality.results import OURS
from benchmarks.tasks.course import Points
from benchmarks.tasks.domains import conditional
from benchmarks.tasks.task import Field, Task
from holdfast import tune

WHOLE = tuple(family for family in MOST if family != "curves")
"""The families whose trials are trained to the end."""
Search = Callable[[Task, int], Any]
Scheduler = Callable[[Task], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """An algorithm and the families for which it is meant.

    `algorithm`: its name in `peers/<side>_players.py`; of holdfast's, `ours` instead. `most`: the
    greatest budget that it runs, where its questions take seconds. `each_budget`: it asks for the
    budget (`TuneConfig(time_budget_s=...)`), so each is a run of its own.
    """

    name: str
    families: Sequence[str] = WHOLE
    side: str = OURS
    ours: Ours = field(default_factory=Ours)
    algorithm: str = ""
    most: float = 100.0
    each_budget: bool = False


def _ours(
    name: str,
    families: Sequence[str],
    search: Search = lambda task, seed: None,
    scheduler: Scheduler = lambda task: None,
    *,
    each_budget: bool = False,
) -> Contestant:
    algorithm = Ours(
        search=search,
        scheduler=scheduler,
        space=lambda task: conditional(task.space, tune),
    )
    return Contestant(name=name, families=families, ours=algorithm, each_budget=each_budget)


def _asha(**settings: Any) -> Scheduler:
    def made(task: Task) -> Any:
        from holdfast.tune.schedulers import ASHAScheduler

        return ASHAScheduler(max_t=task.epochs, **settings)

    return made


def _scheduler(name: str) -> Scheduler:
    def made(task: Task) -> Any:
        from holdfast.tune import schedulers

        return getattr(schedulers, name)(max_t=task.epochs)

    return made


def _median(task: Task) -> Any:
    from holdfast.tune.schedulers import MedianStoppingRule

    return MedianStoppingRule(time_attr="training_iteration", grace_period=5)


def _densities(task: Task, seed: int) -> Any:
    from holdfast.tune.search.bohb import TuneBOHB

    return TuneBOHB(seed=seed)


def _dehb_search(task: Task, seed: int) -> Any:
    from holdfast.tune.search import DEHBSearch

    return DEHBSearch(max_t=task.epochs, seed=seed)


def _dehb(task: Task) -> Any:
    from holdfast.tune.schedulers import DEHBScheduler

    return DEHBScheduler()


RANDOM = "random"
REFERENCES = (RANDOM, "Optuna TPE")
"""Those beside whom the table puts all others."""
CONTESTANTS: Mapping[str, Contestant] = {
    one.name: one
    for one in (
        _ours(RANDOM, tuple(MOST)),
        _ours("auto", tuple(MOST), lambda task, seed: "auto", lambda task: "auto",
              each_budget=True),
        _ours("TuneBOHB", WHOLE, _densities),
        _ours('scheduler="asha"', ("curves",), scheduler=lambda task: "asha"),
        _ours("ASHA", ("curves",), scheduler=_asha()),
        _ours("ASHA, grace_period=4", ("curves",), scheduler=_asha(grace_period=4)),
        _ours("ASHA + TuneBOHB", ("curves",), _densities, _asha(grace_period=4)),
        _ours("HyperBand", ("curves",), scheduler=_scheduler("HyperBandScheduler")),
        _ours("BOHB", ("curves",), _densities, _scheduler("HyperBandForBOHB")),
        _ours("PASHA", ("curves",), scheduler=_scheduler("PASHAScheduler")),
        _ours("DEHB", ("curves",), _dehb_search, _dehb),
        _ours("MedianStoppingRule", ("curves",), scheduler=_median),
        Contestant(name="Optuna TPE", side="optuna", algorithm="TPE", families=tuple(MOST)),
        Contestant(name="Optuna TPE + median", side="optuna", algorithm="TPE, median",
                   families=("curves",)),
        Contestant(name="Optuna TPE + HyperBand", side="optuna", algorithm="TPE, HyperBand",
                   families=("curves",)),
        Contestant(name="Optuna GP", side="optuna", algorithm="GP"),
        Contestant(name="SMAC3", side="smac", algorithm="SMAC"),
        Contestant(name="HEBO", side="hebo", algorithm="HEBO", most=50),
        Contestant(name="Ax", side="ax", algorithm="Ax", most=50),
        Contestant(name="Syne Tune CQR", side="syne", algorithm="CQR"),
        Contestant(name="Syne Tune ASHA-CQR", side="syne", algorithm="ASHA-CQR",
                   families=("curves",)),
    )
}  # fmt: skip


def course(name: str, task: Task, seed: int, field: Field) -> Points:
    """A run of one of holdfast's."""
    return run(CONTESTANTS[name].ours, task, seed, field)
