"""Trainables with bound parameters, resources, or a registered name."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidConfig

MEGABYTE = 1 << 20


def memory_kib(address: int) -> tuple[int, int]:
    """The resident size of this part of memory, and the part of it that only this process has, in
    KiB."""
    found = {"Rss:": 0, "Anonymous:": 0}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name and not name.endswith(":"):
            start, end = (int(part, 16) for part in name.split("-"))
            inside = start <= address < end
        elif inside and name in found:
            found[name] = int(rest.split()[0])
    return found["Rss:"], found["Anonymous:"]


def test_a_large_parameter_is_there_once_for_all_workers(fit: Any) -> None:
    def train(config: dict[str, Any], data: Any) -> None:
        total = int(data.sum())
        resident, own = memory_kib(data.__array_interface__["data"][0])
        tune.report({"sum": total, "resident": resident, "own": own})

    data = np.ones(16 * MEGABYTE, dtype=np.uint8)
    results = fit(tune.with_parameters(train, data=data), {"n": tune.grid_search([1, 2])})
    for result in results:
        assert result.metrics["sum"] == data.nbytes
        assert result.metrics["resident"] >= data.nbytes / 1024
        assert result.metrics["own"] == 0
    assert "train_" in results[0].path


def test_a_class_gets_its_parameters_in_setup(fit: Any) -> None:
    class Model(tune.Trainable):
        def setup(self, config: dict[str, Any], data: Any = None, name: str = "") -> None:
            self.data, self.name = data, name

        def step(self) -> dict[str, Any]:
            return {"got": [self.name, len(self.data), self.config["n"]], "done": True}

    trainable = tune.with_parameters(Model, data=[1, 2, 3], name="bound")
    result = fit(trainable, {"n": 4})[0]
    assert result.metrics["got"] == ["bound", 3, 4]
    assert "Model_" in result.path


def test_parameters_and_resources_may_be_bound_in_either_order(fit: Any) -> None:
    def train(config: dict[str, Any], extra: int) -> None:
        asked = tune.get_context().get_trial_resources().required_resources
        tune.report({"got": [extra, asked["CPU"]]})

    inner = tune.with_parameters(train, extra=7)
    one = tune.with_resources(inner, {"cpu": 2})
    other = tune.with_parameters(tune.with_resources(train, {"cpu": 2}), extra=7)
    assert fit(one)[0].metrics["got"] == [7, 2]
    assert fit(other)[0].metrics["got"] == [7, 2]


def test_a_registered_name_stands_for_its_trainable(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"a": 1})

    tune.register_trainable("by name", train)
    assert fit("by name")[0].metrics["a"] == 1
    with pytest.raises(InvalidConfig, match=r"'another'.*by name"):
        fit("another")
    with pytest.raises(InvalidConfig):
        tune.register_trainable("bad", 3)


def test_partials_lambdas_and_callable_objects_are_trainables(fit: Any) -> None:
    class Callable:
        def __call__(self, config: dict[str, Any]) -> None:
            tune.report({"got": "object"})

    def train(config: dict[str, Any], text: str) -> None:
        tune.report({"got": text})

    for trainable, got in (
        (functools.partial(train, text="partial"), "partial"),
        (lambda config: tune.report({"got": "lambda"}), "lambda"),
        (Callable(), "object"),
    ):
        assert fit(trainable)[0].metrics["got"] == got


def test_a_partial_with_parameters_or_resources_keeps_the_name_of_its_function() -> None:
    def train_it(config: dict[str, Any], text: str, more: int = 0) -> None:
        """What it does."""

    one = functools.partial(train_it, text="a")
    for bound in (tune.with_resources(one, {"cpu": 1}), tune.with_parameters(one, more=1)):
        assert (bound.__name__, bound.__module__) == ("train_it", __name__)
    assert (
        tune.Experiment("a", one, resources_per_trial={"cpu": 1}).trainable.__name__ == "train_it"
    )
    assert tune.with_parameters(train_it, text="a").__doc__ == "What it does."


def test_what_a_trial_changes_in_a_shared_parameter_stays_in_its_process(fit: Any) -> None:
    def train(config: dict[str, Any], seen: list[int]) -> None:
        seen.append(os.getpid())
        tune.report({"seen": len(seen)})

    seen: list[int] = []
    results = fit(
        tune.with_parameters(train, seen=seen),
        {"n": tune.grid_search([1, 2])},
        tune.TuneConfig(max_concurrent_trials=1),
    )
    assert [result.metrics["seen"] for result in results] == [1, 1]
    assert seen == []
