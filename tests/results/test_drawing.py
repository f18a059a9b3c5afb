"""The data of pictures and exports, before matplotlib or Optuna is called."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from holdfast.results.drawing import points, scale_of
from holdfast.results.importance import by_rank
from holdfast.results.tables import arrow_table


def test_a_wide_range_above_zero_is_logarithmic_and_says_powers_of_ten() -> None:
    scale = scale_of([0.001, 0.0316227766, 1.0])
    assert scale.is_log
    assert scale.positions == pytest.approx([0, 0.5, 1])
    assert [text for _, text in scale.ticks] == ["0.001", "0.01", "0.1", "1"]


def test_a_narrow_range_has_round_ticks_and_what_is_missing_has_no_place() -> None:
    scale = scale_of([0.0, None, 0.5, math.nan, 1.0])
    assert not scale.is_log
    assert [p for p in scale.positions if not math.isnan(p)] == [0, 0.5, 1]
    assert [text for _, text in scale.ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_words_and_numbers_that_come_again_stand_in_equal_steps() -> None:
    assert scale_of(["b", "a", None, "c", "a"]).positions[:2] == [0.5, 0]
    assert scale_of([True, 3, "x"]).ticks[0] == (0, "3")
    assert scale_of([16, 32, 128, 16, 32, 128]).positions[:3] == [0, 0.5, 1]
    assert scale_of([7, 7]).positions == [0.5, 0.5]
    assert scale_of([]).ticks == []


def test_a_curve_has_gaps_where_its_metric_is_not_finite() -> None:
    rows: list[dict[str, Any]] = [
        {"n": 1, "a": {"b": 0.5}},
        {"n": 2, "a": {"b": math.inf}},
        {"n": 3},
        {"n": 4, "a": {"b": "text"}},
    ]
    xs, ys = points(rows, "a/b", "n")
    assert xs == [1, 2]
    assert ys[0] == 0.5
    assert math.isnan(ys[1])


def test_rank_importance_sees_numbers_words_and_nothing_where_nothing_is() -> None:
    random = Random(7)
    lr = [random.random() for _ in range(200)]
    kind = [random.choice("abc") for _ in lr]
    noise = [random.random() for _ in lr]
    loss = [x**3 + {"a": 0.0, "b": 0.1, "c": 0.4}[k] for x, k in zip(lr, kind, strict=True)]
    found = by_rank({"lr": lr, "kind": kind, "noise": noise, "same": [1] * 200}, loss)
    assert found["lr"] > found["kind"] > 0.1
    assert found["noise"] < 0.02
    assert found["same"] == 0
    assert by_rank({"id": [str(n) for n in range(200)]}, loss) == {"id": 0}  # explains all


def test_an_arrow_table_takes_whatever_is_reported() -> None:
    table = arrow_table(
        [
            {"a": 1, "b": {"c": 0.5, "d": {}}, "e": [1, "x"], "f": 1},
            {"a": 2.5, "b": {"c": None}, "f": "text", "g": 1 << 70},
        ]
    )
    assert table.column_names == ["a", "b/c", "b/d", "e", "f", "g"]
    assert table["a"].to_pylist() == [1.0, 2.5]
    assert table["e"].to_pylist() == ['[1, "x"]', None]
    assert table["f"].to_pylist() == ["1", "text"]
    assert table["g"].to_pylist() == [None, str(1 << 70)]
    assert arrow_table([]).num_rows == 0
