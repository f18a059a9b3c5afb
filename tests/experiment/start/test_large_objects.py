"""A large object is named before it is written."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.experiment.start.planning import large_parts
from holdfast.experiment.user_objects.stored_objects import stored


def messages(**values: Any) -> list[str]:
    return large_parts({name: stored(value, name) for name, value in values.items()}, values)


def test_the_value_that_makes_a_space_large_is_named() -> None:
    space = {"lr": 0.1, "data": {"train": np.zeros(2_000_000), "test": np.zeros(10)}}
    (text,) = messages(param_space=space)
    assert text.startswith("param_space['data']['train'] is large: tuner.pkl holds 16.0 MB")
    assert "holdfast.put(data)" in text


def test_the_variable_that_makes_a_function_large_is_named() -> None:
    table = np.zeros(2_000_000)

    def train(config: dict[str, Any]) -> None:
        print(len(table), config)

    (text,) = messages(trainable=train)
    assert text.startswith("the trainable: the variable 'table' is large")


def test_an_object_of_many_small_parts_is_named_itself() -> None:
    parts = [np.zeros(200_000) for _ in range(10)]
    (text,) = messages(param_space={"parts": parts})
    assert text.startswith("param_space['parts'] is large")


def test_small_objects_are_not_mentioned() -> None:
    assert messages(param_space={"data": np.zeros(1000)}, trainable=print) == []
