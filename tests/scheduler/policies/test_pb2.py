"""The bandit: its Gaussian process against the textbook, and its choices."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.policies.goal import Chance
from holdfast.scheduler.policies.pb2 import (
    PB2,
    Kernel,
    Measurement,
    Process,
    most_promising,
)
from tests.scheduler.policies.population import Play

SHARES = st.floats(0, 1)


def pb2(**given: Any) -> PB2:
    known = {"time_attr": "training_iteration", "perturbation_interval": 2}
    return PB2(**{"hyperparam_bounds": {"lr": [0.0, 1.0]}, **known, **given})


def solved(matrix: list[list[float]], values: list[float]) -> list[float]:
    """x where matrix x = values, by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, values, strict=True)]
    for i, pivot in enumerate(rows):
        for row in rows[i + 1 :]:
            factor = row[i] / pivot[i]
            row[:] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    found = [0.0] * len(rows)
    for i in reversed(range(len(rows))):
        known = sum(rows[i][j] * found[j] for j in range(i + 1, len(rows)))
        found[i] = (rows[i][-1] - known) / rows[i][i]
    return found


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), SHARES, SHARES, st.floats(-2, 2)), min_size=1, max_size=7
    ),
    st.tuples(st.integers(0, 9), SHARES, SHARES),
)
def test_the_process_is_that_of_the_textbook(
    known: list[tuple[int, float, float, float]], asked: tuple[int, float, float]
) -> None:
    """Rasmussen and Williams, Gaussian Processes for Machine Learning, equations 2.25 and 2.26."""
    kernel = Kernel(length=0.4, forgetting=0.1)
    points = [Measurement(time, (x, y)) for time, x, y, _ in known]
    values = [value for *_, value in known]
    point = Measurement(asked[0], asked[1:])
    noisy = [
        [kernel(a, b) + (0.01 if i == j else 0.0) for j, b in enumerate(points)]
        for i, a in enumerate(points)
    ]
    alike = [kernel(one, point) for one in points]
    mean = sum(a * w for a, w in zip(alike, solved(noisy, values), strict=True))
    variance = 1 - sum(a * w for a, w in zip(alike, solved(noisy, alike), strict=True))
    process = Process(kernel, points, values)
    assert process.mean(point) == pytest.approx(mean, abs=1e-6)
    assert process.deviation(point) ** 2 == pytest.approx(variance, abs=1e-6)


def test_the_kernel_is_that_of_the_paper() -> None:
    kernel = Kernel(length=0.5, forgetting=0.1)
    one, other = Measurement(3, (0.0, 0.0)), Measurement(7, (0.3, 0.4))
    assert kernel(one, other) == pytest.approx(math.exp(-0.5) * 0.9**2)


def measured(count: int) -> tuple[list[Measurement], list[float]]:
    """A function with its best value at 0.3."""
    points = [Measurement(i // 4, (i * 0.618 % 1,)) for i in range(count)]
    return points, [-((point.place[0] - 0.3) ** 2) for point in points]


def chosen(
    points: list[Measurement], values: list[float], running: list[Measurement], seed: int = 0
) -> float:
    (found,) = most_promising(
        points, values, running, now=4.0, context=(), size=1, chance=Chance(f"{seed}")
    )
    return found


def test_what_runs_already_is_not_chosen_again() -> None:
    points = [Measurement(4, (0.5,))]
    alone = chosen(points, [0.0], [])
    beside = chosen(points, [0.0], [Measurement(4, (alone,))])
    assert abs(alone - beside) > 0.5


def test_values_that_are_all_the_same_and_none_at_all_are_no_trouble() -> None:
    points, _ = measured(8)
    assert 0 <= chosen(points, [3.0] * 8, []) <= 1
    assert 0 <= chosen([], [], []) <= 1


def test_values_that_have_nearly_diverged_are_no_trouble() -> None:
    points, values = measured(8)
    assert chosen(points, [1e307 * value for value in values], []) == chosen(points, values, [])
    play = Play(pb2(perturbation_interval=1), 2)
    for loss in (1.7e308, -1.7e308, 1.7e308, -1.7e308):
        play.step("t0", loss)
        play.step("t1", 1.0)
    assert play.clones()


def trained(policy: PB2, rounds: int, **spec: Any) -> Play:
    """Four trials whose loss falls faster the closer `lr` is to 0.7."""
    play = Play(policy, 4, **spec)
    losses = dict.fromkeys((f"t{i}" for i in range(4)), 100.0)
    for _ in range(rounds):
        for trial_id in losses:
            losses[trial_id] -= 1 - (play.config(trial_id)["lr"] - 0.7) ** 2
            before = len(play.clones())
            play.step(trial_id, losses[trial_id])
            for clone, source, _ in play.clones()[before:]:
                losses[clone] = losses[source]
    return play


def test_it_finds_what_makes_trials_better() -> None:
    for seed in range(3):
        play = trained(pb2(quantile_fraction=0.5), 16, seed=seed)
        found = [config["lr"] for _, _, config in play.clones()]
        assert all(0 <= one <= 1 for one in found)
        assert found[-1] == pytest.approx(0.7, abs=0.1)


def test_after_a_crash_it_chooses_what_it_would_have_chosen() -> None:
    one, other = trained(pb2(), 4), trained(pb2(), 4)
    other.crash()
    other.settle()
    for play in (one, other):
        for trial_id in ("t0", "t1", "t2", "t3") * 4:
            play.step(trial_id, {"t0": 1.0, "t1": 2.0, "t2": 3.0, "t3": 4.0}[trial_id])
    assert one.clones() == other.clones()
    assert len(one.clones()) > 2


def test_a_whole_number_stays_one_and_what_is_lacking_is_drawn_between_the_bounds() -> None:
    bounds = {"lr": [0.0, 1.0], "net": {"width": [4, 64], "rate": (0.1, 0.2)}}
    policy = pb2(hyperparam_bounds=bounds)
    asked = {"gains": [], "running": [], "time": 2.0, "before": 0.0, "chance": "x"}
    config = policy.completed({"lr": 1, "net": {"width": 8, "rate": 0.15}}, asked)
    assert type(config["lr"]) is int
    assert type(config["net"]["width"]) is int
    assert 4 <= config["net"]["width"] <= 64
    assert 0.1 <= config["net"]["rate"] <= 0.2
    assert policy.completed({"lr": 0.5, "net": "none"}, asked)["net"] == "none"
    assert policy.first({"lr": 0.5, "net": "none"}, Chance("0")) is None
    play = Play(pb2(hyperparam_bounds=bounds), 2)
    assert play.config("t0")["lr"] == 1.0
    assert 4 <= play.config("t0")["net"]["width"] <= 64
