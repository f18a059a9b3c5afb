"""Whether importance says more than chance: the least number of trials, and the tests."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from holdfast.results.importance import (
    ABSENT,
    ForestScores,
    by_forest,
    by_rank,
    chance_by_rank,
    chance_of_folds,
    fewest,
    left_out,
    needed,
    permutations,
    too_few,
    within_chance,
)


def test_the_least_number_of_trials_is_where_a_perfect_order_is_no_accident() -> None:
    assert [fewest(count) for count in (1, 3, 4, 18, 19)] == [5, 5, 6, 6, 7]
    for parameters in (1, 3, 4, 18, 19):
        least = fewest(parameters)
        assert 2 * parameters / math.factorial(least) <= 0.05
        assert 2 * parameters / math.factorial(least - 1) > 0.05


def test_too_few_trials_are_refused_with_the_numbers() -> None:
    assert too_few("loss", 4, 3) == (
        "importance of 3 parameters needs 5 trials that reported loss, and there are 4: with "
        "fewer, chance alone ranks the trials perfectly in more than 1 of 20 cases"
    )
    assert too_few("loss", 5, 3) == ""
    assert too_few("loss", 0, 0) == "no trial has reported loss"
    assert too_few("loss", 9, 0) == "the 9 trials that reported loss have no parameter that varies"


def noise(trials: int, parameters: int, seed: int) -> tuple[dict[str, list[float]], list[float]]:
    draw = random.Random(seed)
    columns = {f"p{i}": [draw.random() for _ in range(trials)] for i in range(parameters)}
    return columns, [draw.random() for _ in range(trials)]


@pytest.mark.parametrize(("trials", "parameters"), [(6, 4), (20, 3)])
def test_of_noise_about_one_run_in_twenty_has_a_score_above_chance(
    trials: int, parameters: int
) -> None:
    above = 0
    for seed in range(60):
        columns, values = noise(trials, parameters, seed)
        level = chance_by_rank(columns, values)["p0"]
        above += max(by_rank(columns, values).values()) > level
    assert above <= 9  # 3 are expected; 10 or more of 60 in 1 of 1,000 cases


def test_a_parameter_that_decides_is_above_chance_with_few_trials() -> None:
    columns, _ = noise(8, 3, 1)
    values = [10 * value for value in columns["p1"]]
    chance = chance_by_rank(columns, values)
    scores = by_rank(columns, values)
    assert scores["p1"] == pytest.approx(1)
    assert 0.4 < chance["p1"] < 0.9
    assert within_chance(scores, chance, 8) == ""


def test_a_word_and_a_number_are_tested_alike() -> None:
    draw = random.Random(3)
    kind = [draw.choice("ab") for _ in range(40)]
    values = [draw.random() + 3 * (word == "a") for word in kind]
    columns: dict[str, list[Any]] = {"kind": kind, "noise": [draw.random() for _ in range(40)]}
    scores, chance = by_rank(columns, values), chance_by_rank(columns, values)
    assert scores["kind"] > chance["kind"] > scores["noise"]


def test_scores_within_chance_are_named_with_the_number_of_trials_that_would_say_more() -> None:
    text = within_chance({"lr": 0.25, "width": 0.0}, {"lr": 0.5, "width": 0.5}, 11)
    assert text == (
        "importance: no parameter stands out from chance. lr has the highest score, 0.25, and "
        "with 11 trials chance alone reaches 0.50 in 1 of 20 cases. About 21 trials would tell a "
        "score as high from it"
    )
    assert within_chance({"lr": 0.0}, {"lr": 0.5}, 11).endswith("in 1 of 20 cases")
    assert within_chance({"lr": 0.1}, {}, 11) == ""  # an algorithm without a test
    assert needed(0.5, 0.5, 20) == 20


def test_the_test_over_folds_widens_the_errors_for_what_the_folds_share() -> None:
    asked = []

    def quantile(probability: float, degrees: int) -> float:
        asked.append((probability, degrees))
        return 2.0

    found = chance_of_folds({"a": 0.1, "b": 0.0}, 5, quantile)
    assert asked == [(0.975, 4)]
    assert found == {"a": pytest.approx(0.1 * 2.0 * 1.5), "b": 0.0}


def conditional(trials: int) -> tuple[dict[str, list[Any]], list[float]]:
    """A width that only one kind of model has, and that decides there; the other has a rate."""
    draw = random.Random(5)
    kind = [draw.choice("ab") for _ in range(trials)]
    width: list[Any] = [draw.random() if k == "a" else ABSENT for k in kind]
    rate: list[Any] = [ABSENT if k == "a" else draw.random() for k in kind]
    values = [draw.random() if w is ABSENT else w for w in width]
    return {"kind": kind, "width": width, "rate": rate}, values


def test_a_parameter_that_only_some_trials_have_is_judged_among_those() -> None:
    columns, values = conditional(30)
    scores, chance = by_rank(columns, values), chance_by_rank(columns, values)
    assert scores["width"] == pytest.approx(1)
    assert chance["width"] < 0.6
    assert scores["rate"] < chance["rate"]
    # Fewer trials reach a higher score by chance.
    assert chance["kind"] < min(chance["width"], chance["rate"])
    assert max(chance.values()) <= 1


def test_a_forest_without_skill_says_so_and_never_has_a_chance_of_more_than_can_be() -> None:
    pytest.importorskip("sklearn")
    columns, values = noise(14, 2, 3)
    found = by_forest(columns, [value**30 for value in values])  # one trial has all the variance
    doubt = found.doubt("loss")
    assert doubt.startswith("a random forest predicts loss no better than its mean on trials that")
    assert doubt.endswith(": these are the scores of 'rank'")
    assert max(found.chance.values()) < 10
    constant = by_forest(columns, [1.0] * 14)
    assert (constant.explained, set(constant.scores.values())) == (0.0, {0.0})
    unsure = ForestScores({"lr": 0.5}, {"lr": 0.3}, {"lr": 1.2}, 0.4)
    assert unsure.doubt("loss").startswith("random forests that were fitted to different trials d")
    assert ForestScores({"lr": 1.5}, {"lr": 0.3}, {"lr": 1.2}, 0.9).doubt("loss") == ""


def test_a_forest_permutes_a_conditional_parameter_among_the_trials_that_have_it() -> None:
    pytest.importorskip("sklearn")
    columns, values = conditional(60)
    columns["width"] = [0.5 if v is not ABSENT else v for v in columns["width"]]
    scores = by_forest(columns, values).scores
    assert scores["width"] == 0  # whether a trial has it says nothing about its values


def test_a_note_names_the_trials_that_have_the_parameter_and_the_parameters_left_out() -> None:
    assert "and with the 7 trials that have it chance alone reaches 0.50 in 1 of 20" in (
        within_chance({"lr": 0.25}, {"lr": 0.5}, 11, {"lr": 7})
    )
    assert left_out({"kind": 14, "lr": 3, "width": 5}, 6) == (
        "not judged, because fewer than 6 trials have it: lr (in 3), width (in 5)"
    )
    assert left_out({"kind": 14}, 6) == ""


def test_of_many_trials_fewer_permutations_are_tried_but_never_too_few() -> None:
    assert [permutations(n, 10) for n in (10, 1_000, 4_000, 1_000_000)] == [399, 399, 100, 19]
