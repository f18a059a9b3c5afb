"""All tasks, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from benchmarks.tasks.analytic import (
    ACKLEY,
    BRANIN,
    HARTMANN3,
    HARTMANN6,
    LEVY,
    ROSENBROCK,
    UNEVEN,
)
from benchmarks.tasks.evolving import QUADRATIC, QUADRATIC_IN_BATCHES, UNEVEN_QUADRATIC
from benchmarks.tasks.mixed import NETWORK, SMALL_NETWORK
from benchmarks.tasks.published import PUBLISHED
from benchmarks.tasks.recorded import recorded
from benchmarks.tasks.surrogates import surrogate
from benchmarks.tasks.synthetic import SYNTHETIC
from benchmarks.tasks.task import Task


def _digits() -> Task:
    return recorded(
        "digits",
        "error",
        about="error of a network on scikit-learn's digits (1,198 images), by 4 parameters",
        seconds=lambda config: 0.4 + 75 / (7.5 + config["batch"]) / 5,
    )


def _breast_cancer() -> Task:
    return recorded(
        "breast_cancer",
        "log_loss",
        about="log loss of a network on scikit-learn's breast cancer data (285 rows), by 4 "
        "parameters; the best ones overfit later",
        seconds=lambda config: 1.0,
    )


def _wine() -> Task:
    return recorded(
        "wine",
        "log_loss",
        about="log loss of a network on scikit-learn's wine data (89 rows), by 4 parameters, "
        "one a category",
        seconds=lambda config: 1.0,
    )


def _same(made: Task) -> Task:
    return made


TASKS: Mapping[str, Callable[[], Task]] = {
    **{
        made.name: partial(_same, made)
        for made in (
            BRANIN, HARTMANN3, HARTMANN6, ROSENBROCK, ACKLEY, LEVY, UNEVEN, NETWORK, SMALL_NETWORK,
            QUADRATIC, QUADRATIC_IN_BATCHES, UNEVEN_QUADRATIC,
        )
    },
    "digits": _digits,
    "breast_cancer": _breast_cancer,
    "wine": _wine,
}  # fmt: skip


@cache
def task(name: str) -> Task:
    """The task of this name: of TASKS, or one of a family, as in `lcbench/3945`, `noisy/2`."""
    family, _, number = name.partition("/")
    if family in SYNTHETIC:
        return SYNTHETIC[family](int(number))
    if family in PUBLISHED:
        return PUBLISHED[family](number)
    return surrogate(family, number) if number else TASKS[name]()
