"""What every scheduler does: crashes change no decision, senseless settings and reports are
refused or skipped. The other files here compare each with the definition of its paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.effects import Warn
from holdfast.scheduler.events import SearchEnded
from holdfast.scheduler.policies.resource_changing import (
    DistributeResources,
    DistributeResourcesToTopJob,
    ResourceChangingScheduler,
)
from holdfast.scheduler.policy import FIFOScheduler, TrialScheduler
from holdfast.scheduler.searchers.dehb import DEHBSearch
from holdfast.testing.rehearsal import Lockstep, Rehearsal, experiment_spec
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.space import choice, grid_search, uniform
from holdfast.trial.trial import Status
from holdfast.tune import schedulers as kinds

GOAL: dict[str, Any] = {"metric": "loss", "mode": "min"}
LR = {"lr": uniform(0.001, 2.0)}
STEPWISE: dict[str, Any] = {"time_attr": "training_iteration", "perturbation_interval": 2}


def asha(**given: Any) -> TrialScheduler:
    return kinds.ASHAScheduler(**given)


def several(**given: Any) -> TrialScheduler:
    goals: dict[str, Any] = {"metrics": ["loss", "speed"], "modes": ["min", "max"]}
    return kinds.MultiObjectiveASHAScheduler(**{**goals, **given})


def median(**given: Any) -> TrialScheduler:
    known = {"time_attr": "training_iteration", "grace_period": 1, "min_samples_required": 2}
    return kinds.MedianStoppingRule(**{**known, **given})


def pbt(**given: Any) -> TrialScheduler:
    return kinds.PopulationBasedTraining(**{"hyperparam_mutations": LR, **STEPWISE, **given})


def pb2(**given: Any) -> TrialScheduler:
    return kinds.PB2(**{"hyperparam_bounds": {"lr": [0.001, 2.0]}, **STEPWISE, **given})


# Populations are in test_pbt.py: a trial of theirs may go back again and again.
SCHEDULERS: dict[str, Callable[[], TrialScheduler]] = {
    "fifo": FIFOScheduler,
    "asha": lambda: asha(max_t=8, reduction_factor=2),
    "auto": kinds.AutoScheduler,
    "asha in brackets": lambda: asha(max_t=8, reduction_factor=2, brackets=3),
    "several goals": lambda: several(max_t=9),
    "pasha": lambda: kinds.PASHAScheduler(max_t=8, reduction_factor=2),
    "hyperband": lambda: kinds.HyperBandScheduler(max_t=8, reduction_factor=2),
    "bohb": lambda: kinds.HyperBandForBOHB(max_t=8, reduction_factor=2),
    "median": median,
    "median that pauses": lambda: median(hard_stop=False),
    "resources": lambda: ResourceChangingScheduler(asha(max_t=8, reduction_factor=2)),
}
Row = Mapping[str, float]


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=5, deadline=None)
@given(
    values=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=9, max_size=9),
        min_size=3,
        max_size=8,
    ),
    crashes=st.sets(st.integers(3, 90), min_size=1, max_size=3),
)
def test_a_run_that_is_cut_off_and_resumed_makes_the_same_decisions(
    name: str, values: list[list[tuple[int, int]]], crashes: set[int]
) -> None:
    def life(index: int, at: int) -> Row | None:
        if at > len(values[index]):
            return None
        loss, speed = values[index][at - 1]
        return {"loss": loss, "speed": speed}

    def play(crashes: set[int]) -> list[Any]:
        count = len(values)
        study = Lockstep(
            SCHEDULERS[name](), life, trials=count, num_samples=count, crashes=crashes, **GOAL
        )
        return [
            (
                trial.status,
                trial.iteration,
                trial.config,
                trial.spec.resources,
                [(one.milestone, one.promoted, one.value, one.cutoff) for one in trial.rungs],
            )
            for trial in study.to_the_end().trials
        ]

    assert play(crashes) == play(set())


GRACE = {"grace_period": 10, "max_t": 5}
REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    *(
        (kind, given, told)
        for kind in (asha, kinds.HyperBandScheduler, kinds.PASHAScheduler, several, median, pbt)
        for given, told in (
            ({"time_attr": None}, "time_attr=None"),
            ({"time_attr": ""}, "time_attr=''"),
        )
    ),
    *(
        (kind, given, told)
        for kind in (asha, kinds.HyperBandForBOHB, kinds.PASHAScheduler, median, pbt, pb2)
        for given, told in (
            ({"mode": "best"}, "pass 'min' or 'max'"),
            ({"metric": ""}, "metric=''"),
        )
    ),
    *(
        (kind, given, told)
        for kind in (asha, kinds.HyperBandScheduler, kinds.PASHAScheduler, several)
        for given, told in (
            ({"max_t": 0}, "max_t=0"),
            ({"max_t": math.nan}, "max_t=nan"),
            ({"max_t": math.inf}, "max_t=inf"),
            ({"reduction_factor": 1}, "above 1"),
        )
    ),
    *((kind, GRACE, "grace_period=10") for kind in (asha, kinds.PASHAScheduler, several)),
    (asha, {"grace_period": 0}, "pass a number above 0"),
    (asha, {"brackets": 0}, "whole number above 0"),
    (kinds.PASHAScheduler, {"noise_percentile": 101}, "from 0 to 100"),
    (kinds.PASHAScheduler, {"noise_percentile": math.nan}, "from 0 to 100"),
    (several, {"metrics": "loss"}, "pass a list"),
    (several, {"metrics": ["loss"], "modes": ["min"]}, "two or more"),
    (several, {"metrics": ["loss", "loss"]}, "two or more"),
    (several, {"modes": ["min"]}, "for each metric"),
    (several, {"modes": ["min", "most"]}, "for each metric"),
    (median, {"grace_period": -1}, "grace_period=-1"),
    (median, {"grace_period": math.nan}, "grace_period=nan"),
    (median, {"min_time_slice": "1"}, "min_time_slice='1'"),
    (median, {"min_samples_required": 0}, "whole number above 0"),
    (pbt, {"quantile_fraction": 0.6}, "quantile_fraction=0.6"),
    (pbt, {"quantile_fraction": -0.1}, "from 0 to 0.5"),
    (pbt, {"hyperparam_mutations": None}, "would ever change; pass {'lr': [...]}, or"),
    (pbt, {"hyperparam_mutations": {}}, "no config would ever change"),
    (pbt, {"hyperparam_mutations": {"lr": 3}}, "lr is 3"),
    (pbt, {"hyperparam_mutations": {"lr": []}}, "lr is []"),
    (pbt, {"hyperparam_mutations": {"lr": grid_search([1, 2])}}, "lr is {'grid_search'"),
    (pbt, {"hyperparam_mutations": ["lr"]}, "pass a dict"),
    (pbt, {"hyperparam_mutations": {"net": {"act": [math.sin]}}}, "net/act became"),
    (pbt, {"hyperparam_mutations": {"act": choice([math.sin])}}, "act became"),
    (pbt, {"perturbation_interval": 0}, "pass a number above 0"),
    (pbt, {"perturbation_interval": math.inf}, "perturbation_interval=inf"),
    (pbt, {"burn_in_period": -1}, "burn_in_period=-1"),
    (pbt, {"resample_probability": 1.5}, "from 0 to 1"),
    (pbt, {"perturbation_factors": ()}, "perturbation_factors=()"),
    (pbt, {"perturbation_factors": (0, 2)}, "pass numbers above 0"),
    (pbt, {"custom_explore_fn": 3}, "custom_explore_fn=3"),
    *(
        (pb2, {"hyperparam_bounds": bounds}, told)
        for bounds, told in (
            (None, "pass the lowest and the highest"),
            (["lr"], "pass a dict"),
            ({"lr": [1.0]}, "lr is [1.0]"),
            ({"lr": [1.0, 1.0]}, "two numbers"),
            ({"net": {"lr": [2, 1]}}, "net/lr is [2, 1]"),
            ({"lr": [0, math.inf]}, "two numbers"),
            ({"lr": ["a", "b"]}, "two numbers"),
        )
    ),
    (DEHBSearch, {"max_t": 0.5}, "max_t=0.5"),
    (DEHBSearch, {"reduction_factor": 1}, "reduction_factor=1"),
    (DEHBSearch, {"mutation_factor": 0}, "mutation_factor=0"),
    (DEHBSearch, {"crossover_prob": 2}, "from 0 to 1"),
    (DEHBSearch, {"crossover_prob": "much"}, "from 0 to 1"),
    (DEHBSearch, {"seed": "x"}, "seed='x'"),
    (DEHBSearch, {"max_t": 1, "points_to_evaluate": [{}, {}]}, "pass at most 1"),
    (ResourceChangingScheduler, {"base_scheduler": "asha"}, "base_scheduler='asha'"),
    (
        ResourceChangingScheduler,
        {"base_scheduler": ResourceChangingScheduler()},
        "pass another kind",
    ),
    (
        ResourceChangingScheduler,
        {"resources_allocation_function": None},
        "use the base scheduler itself",
    ),
    (DistributeResources, {"increase_by": {"CPU": 0}}, "pass an amount above 0"),
    (DistributeResources, {"increase_by": {"CPU": -1}}, "zero or more"),
    (DistributeResources, {"reserve_resources": 3}, "must be a dict"),
    (DistributeResources, {"increase_by_times": 1.5}, "whole number"),
    (DistributeResourcesToTopJob, {"mode": "best"}, "pass 'min' or 'max'"),
]


@pytest.mark.parametrize(("kind", "given", "told"), REFUSED)
def test_settings_that_mean_nothing_are_refused(
    kind: Callable[..., Any], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        kind(**given)
    assert told in str(refusal.value)


JUDGING: dict[str, Callable[..., Any]] = {
    "asha": lambda **given: asha(reduction_factor=2, **given),
    "pasha": kinds.PASHAScheduler,
    "hyperband": kinds.HyperBandScheduler,
    "median": lambda **given: median(**given),
}
judging = pytest.mark.parametrize("name", JUDGING)


def running(scheduler: TrialScheduler, count: int = 2) -> Rehearsal:
    run = Rehearsal(
        capacity={"CPU": float(count)},
        policy=scheduler,
        scheduler=type(scheduler).__name__,
        strict_metric=False,
        **GOAL,
    )
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    run.handle(SearchEnded())
    return run


@judging
def test_a_report_without_the_metric_is_skipped_and_one_that_is_no_number_is_told_once(
    name: str,
) -> None:
    run = running(JUDGING[name]())
    effects = [*run.report("t0", {"other": 1.0}, checkpoint=True)]
    for trial_id in ("t0", "t1"):
        effects += run.report(trial_id, {"loss": "0.5"}, checkpoint=True)
    (told,) = [effect.text for effect in effects if isinstance(effect, Warn)]
    assert "'loss' is '0.5' in a report of trial t0, not a number. Such reports are" in told
    assert [run.trial(one).status for one in ("t0", "t1")] == [Status.RUNNING] * 2


@judging
def test_a_time_that_no_report_has_ends_the_run_and_names_what_is_near(name: str) -> None:
    run = running(JUDGING[name](time_attr="epoch"))
    run.report("t0", {"loss": 1.0, "epochs": 1})
    assert run.machine.ending is not None
    assert "(time_attr='epoch'): a report has no such number" in run.machine.ending.message
    assert "Did you mean 'epochs'?" in run.machine.ending.message


@judging
def test_the_goal_is_named_once_by_the_tuner_or_the_scheduler(name: str) -> None:
    make = JUDGING[name]
    with pytest.raises(InvalidConfig, match="needs a metric"):
        make().begun(experiment_spec())
    with pytest.raises(InvalidConfig, match="differ"):
        make(metric="acc").begun(experiment_spec(**GOAL))
    goal = make(mode="max").begun(experiment_spec(metric="acc", mode="max")).goal
    assert (goal.metric, goal.mode) == ("acc", "max")
