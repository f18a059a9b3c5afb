"""The contests of search algorithms. All but the first train each trial to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from benchmarks.quality.contest import COMMON, Contest
from benchmarks.quality.ours import Ours, optuna_space
from benchmarks.tasks.domains import conditional, domains
from benchmarks.tasks.task import Field
from holdfast import tune

PAIR = Field(workers=2, trainings=16)
"""32 trials, two at a time: a model's knowledge matters more than how many run at once."""
ALONE = Field(workers=1, trainings=16)
"""16 trials one after the other, for Gaussian processes, whose questions take seconds."""
FUNCTIONS = ("branin", "hartmann3")
WITH_CONDITIONS = (*FUNCTIONS, "network")
# The number of random trials, in place of a library's default if that would be most of them.
BEGINNING, BEGINNING_ALONE = 10, 5


def _generator() -> Ours:
    return Ours(uses_generator=True)


def _tpe(**settings: Any) -> Callable[[], Ours]:
    def made() -> Ours:
        from optuna.samplers import TPESampler

        from holdfast.tune.search.optuna import OptunaSearch

        return Ours(
            search=lambda task, seed: OptunaSearch(
                space=optuna_space(task),
                seed=seed,
                sampler=TPESampler(seed=seed, **settings) if settings else None,
            ),
            space=lambda task: {},
        )

    return made


def _search(
    name: str, seed_name: str = "seed", *, conditions: bool = False, **settings: Any
) -> Callable[[], Ours]:
    """`conditions`: parameters that depend on a choice are passed inside that choice."""

    def made() -> Ours:
        home = name.removesuffix("Search").lower()
        kind = getattr(import_module(f"holdfast.tune.search.{home}"), name)
        space = conditional if conditions else domains
        return Ours(
            search=lambda task, seed: kind(**{seed_name: seed}, **settings),
            space=lambda task: space(task.space, tune),
        )

    return made


SEARCHES: Sequence[Contest] = [
    Contest(
        name="BasicVariantGenerator",
        ours=_generator,
        peers={"optuna": "random", "syne": "random"},
        beats_random=False,
        paper="Bergstra and Bengio, 2012",
        shown_at=("BasicVariantGenerator",),
    ),
    Contest(
        name="OptunaSearch (TPE)",
        ours=_tpe(),
        peers={"optuna": "TPE"},
        kin={"syne": "TPE"},
        paper="Bergstra et al., 2011",
        shown_at=("optuna.OptunaSearch",),
    ),
    Contest(
        name="OptunaSearch (TPE), constant_liar=False",
        ours=_tpe(constant_liar=False),
        tasks=("branin", "digits", "wine"),
        paper="Bergstra et al., 2011",
    ),
    Contest(
        name="OptunaSearch (TPE), 2 workers",
        ours=_tpe(),
        tasks=COMMON,
        field=PAIR,
        peers={"ray": "OptunaSearch"},
        paper="Bergstra et al., 2011",
    ),
    Contest(
        name="HyperOptSearch",
        ours=_search(
            "HyperOptSearch", "random_state_seed", conditions=True, n_initial_points=BEGINNING
        ),
        tasks=WITH_CONDITIONS,
        field=PAIR,
        peers={"ray": "HyperOptSearch"},
        paper="Bergstra et al., 2011",
        shown_at=("hyperopt.HyperOptSearch",),
    ),
    Contest(
        name="BayesOptSearch",
        ours=_search("BayesOptSearch", "random_state", random_search_steps=BEGINNING_ALONE),
        tasks=FUNCTIONS,
        field=ALONE,
        peers={"ray": "BayesOptSearch"},
        paper="Snoek, Larochelle and Adams, 2012",
        shown_at=("bayesopt.BayesOptSearch",),
    ),
    Contest(
        name="AxSearch",
        ours=_search("AxSearch"),
        tasks=FUNCTIONS,
        field=ALONE,
        seeds=15,
        peers={"ray": "AxSearch"},
        paper="Balandat et al., 2020",
        shown_at=("ax.AxSearch",),
    ),
    Contest(
        name="NevergradSearch",
        ours=_search(
            "NevergradSearch", conditions=True, optimizer_kwargs={"budget": 32, "num_workers": 2}
        ),
        tasks=WITH_CONDITIONS,
        field=PAIR,
        peers={"ray": "NevergradSearch"},
        paper="Rapin and Teytaud, 2018",
        shown_at=("nevergrad.NevergradSearch",),
    ),
    Contest(
        name="HEBOSearch",
        ours=_search("HEBOSearch", "random_state_seed"),
        tasks=FUNCTIONS,
        field=ALONE,
        seeds=15,
        peers={"ray": "HEBOSearch"},
        paper="Cowen-Rivers et al., 2022",
        shown_at=("hebo.HEBOSearch",),
    ),
    Contest(
        name="ZOOptSearch",
        ours=_search("ZOOptSearch", budget=32, parallel_num=2),
        tasks=FUNCTIONS,
        field=PAIR,
        peers={"ray": "ZOOptSearch"},
        paper="Hu, Qian and Yu, 2017",
        shown_at=("zoopt.ZOOptSearch",),
    ),
]
