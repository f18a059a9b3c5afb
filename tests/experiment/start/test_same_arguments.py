"""Whether a script creates a scheduler with the arguments that the experiment was begun with."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.start.restoring import differing_arguments, ignored_arguments
from holdfast.tune.schedulers import (
    PB2,
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PASHAScheduler,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)
from holdfast.tune.search import BasicVariantGenerator


def explored(config: dict[str, Any]) -> dict[str, Any]:
    return config


def pbt(**given: Any) -> PopulationBasedTraining:
    space = {"lr": tune.loguniform(1e-4, 1), "width": [8, 16], "depth": explored}
    return PopulationBasedTraining(**{"hyperparam_mutations": space, **given})


def points(*rates: float) -> BasicVariantGenerator:
    return BasicVariantGenerator(points_to_evaluate=[{"lr": rate} for rate in rates])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ASHAScheduler(max_t=81, brackets=3),
        lambda: HyperBandScheduler(max_t=81),
        lambda: PASHAScheduler(max_t=81),
        lambda: MedianStoppingRule(grace_period=3),
        lambda: PB2(hyperparam_bounds={"lr": [0, 1]}),
        lambda: ResourceChangingScheduler(ASHAScheduler(max_t=9)),
        lambda: pbt(custom_explore_fn=explored),
        lambda: points(0.1, math.nan),
    ],
)
def test_what_is_made_twice_alike_has_no_differences(make: Any) -> None:
    assert differing_arguments(pickle.loads(pickle.dumps(make())), make()) == []


@pytest.mark.parametrize(
    ("kept", "said", "names"),
    [
        (ASHAScheduler(max_t=9), ASHAScheduler(max_t=27), ["max_t", "brackets"]),
        (ASHAScheduler(max_t=9), ASHAScheduler(max_t=9.0), []),
        (ASHAScheduler(max_t=9), ASHAScheduler(max_t=9, metric="loss", mode="min"), []),
        (ASHAScheduler(), HyperBandScheduler(), []),
        (pbt(), pbt(perturbation_interval=5), ["interval"]),
        (pbt(), pbt(hyperparam_mutations={"lr": tune.loguniform(1e-4, 2)}), ["given"]),
        (pbt(), pbt(custom_explore_fn=explored), ["custom_explore_fn"]),
        (points(0.1), points(0.2), ["points_to_evaluate"]),
        (points(0.1), points(0.1, 0.2), ["points_to_evaluate"]),
        (FIFOScheduler(), None, []),
    ],
)
def test_what_differs_is_named(kept: Any, said: Any, names: list[str]) -> None:
    assert differing_arguments(kept, said) == names


def test_other_arguments_are_reported_in_a_line_each() -> None:
    kept = tune.TuneConfig(scheduler=ASHAScheduler(max_t=9), search_alg=points(0.1))
    said = tune.TuneConfig(scheduler=ASHAScheduler(max_t=27), search_alg=points(0.2))
    assert list(ignored_arguments(kept, kept)) == []
    assert list(ignored_arguments(kept, said)) == [
        "scheduler: max_t, brackets differs from what the experiment was begun with. A restore "
        "cannot change it: the earlier ASHAScheduler is used. To use the new one, start a "
        "new run under another name=...",
        "search_alg: points_to_evaluate differs from what the experiment was begun with. A "
        "restore cannot change it: the earlier BasicVariantGenerator is used. To use the "
        "new one, start a new run under another name=...",
    ]
