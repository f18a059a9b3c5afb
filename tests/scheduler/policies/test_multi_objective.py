"""Multi-objective ASHA against its definition, recomputed for each report."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.effects import Reply, Verdict
from holdfast.scheduler.policies.asha import MultiObjectiveASHAScheduler
from holdfast.scheduler.policies.pareto import Fronts, spread
from holdfast.testing.rehearsal import Rehearsal, experiment_spec
from holdfast.trial.errors import InvalidConfig

GOALS: dict[str, Any] = {"metrics": ["loss", "speed"], "modes": ["min", "max"]}
Pair = tuple[int, int]


def running(count: int, **settings: Any) -> Rehearsal:
    scheduler = MultiObjectiveASHAScheduler(**{**GOALS, **settings})
    run = Rehearsal(
        capacity={"CPU": float(count)}, policy=scheduler, scheduler=type(scheduler).__name__
    )
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    return run


def stops(run: Rehearsal, trial_id: str, **metrics: float) -> bool:
    (reply,) = [e for e in run.report(trial_id, metrics) if isinstance(e, Reply)]
    return reply.verdict is Verdict.STOP


def fronts_of(points: Sequence[tuple[float, ...]]) -> list[list[int]]:
    """Remove the points that no other one dominates, repeatedly."""
    left, fronts = set(range(len(points))), []
    while left:
        front = [
            one
            for one in sorted(left)
            if not any(
                points[other] != points[one]
                and all(a >= b for a, b in zip(points[other], points[one], strict=True))
                for other in left
            )
        ]
        fronts.append(front)
        left -= set(front)
    return fronts


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 3).flatmap(
        lambda size: st.lists(st.tuples(*[st.integers(0, 5)] * size), min_size=1, max_size=25)
    )
)
def test_the_fronts_are_those_that_taking_away_the_unbeaten_gives(
    points: list[tuple[float, ...]],
) -> None:
    fronts = Fronts()
    for number, point in enumerate(points):
        assert fronts.add(point) == number
        expected = fronts_of(points[: number + 1])
        assert fronts._fronts == expected
    size = len(expected[0])
    assert [one for one in range(len(points)) if fronts.is_among_first(one, size)] == expected[0]


def test_a_choice_covers_a_front_beginning_with_the_best_by_the_first_metric() -> None:
    line = [(float(at), 100.0 - 10 * at) for at in range(11)]
    assert spread(line, 3) == [10, 0, 5]
    assert spread(line, 1) == [10]
    assert sorted(spread(line, 99)) == list(range(11))
    assert spread([(1.0, 1.0)] * 3, 2) == [0, 1]


def is_good(points: list[tuple[float, float]], factor: int) -> bool:
    """The paper's rule for the newest of the points at a rung."""
    count, newest = max(1, len(points) // factor), len(points) - 1
    for front in fronts_of(points):
        if newest in front:
            chosen = spread([points[one] for one in front], count)
            return newest in [front[place] for place in chosen]
        count -= len(front)
        if count <= 0:
            return False
    raise AssertionError


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 3),
    st.integers(1, 12),
    st.lists(
        st.tuples(st.integers(0, 6), st.tuples(st.integers(0, 9), st.integers(0, 9))),
        min_size=1,
        max_size=80,
    ),
)
def test_every_stop_is_the_one_of_the_definition(
    factor: int, most: int, reports: list[tuple[int, Pair]]
) -> None:
    run = running(7, reduction_factor=factor, max_t=most)
    rungs = [rung for rung in (1, factor, factor**2, factor**3) if rung <= most]
    seen: dict[int, list[tuple[float, float]]] = {rung: [] for rung in rungs}
    times = dict.fromkeys(range(7), 0)
    stopped: set[int] = set()
    for trial, (loss, speed) in reports:
        if trial in stopped:
            continue
        times[trial] += 1
        goes_on = times[trial] < most
        if times[trial] in rungs:
            seen[times[trial]].append((-loss, speed))
            goes_on = is_good(seen[times[trial]], factor) and goes_on
        assert stops(run, f"t{trial}", loss=loss, speed=speed) == (not goes_on)
        if not goes_on:
            stopped.add(trial)


def test_one_that_diverges_in_one_metric_is_the_worst_by_all() -> None:
    run = running(3, reduction_factor=2)
    assert not stops(run, "t0", loss=1.0, speed=1.0)
    assert stops(run, "t1", loss=0.0, speed=math.nan)
    assert not stops(run, "t2", loss=0.5, speed=2.0)


def test_a_report_that_lacks_a_metric_is_skipped_unless_it_is_the_first() -> None:
    run = running(2, reduction_factor=2)
    assert not stops(run, "t0", loss=1.0, speed=1.0)
    assert not stops(run, "t1", loss=9.0)
    other = running(1)
    other.report("t0", {"loss": 1.0, "sped": 1.0})
    assert other.machine.ending is not None
    assert "no number named 'speed'. Did you mean 'sped'?" in other.machine.ending.message


def test_the_tuners_metric_may_be_one_of_them_and_agrees_with_them() -> None:
    scheduler = MultiObjectiveASHAScheduler(**GOALS)
    scheduler.begun(experiment_spec(metric="loss", mode="min"))
    scheduler.begun(experiment_spec())
    with pytest.raises(InvalidConfig, match="make them agree"):
        scheduler.begun(experiment_spec(metric="loss", mode="max"))
