"""The common part of searches that use libraries, with a library that only counts."""

from __future__ import annotations

import math
import pickle
import random
from typing import Any, ClassVar

import pytest

from holdfast import tune
from holdfast.lazy import Framework
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment, Parameters
from holdfast.tune.search.library import LibrarySearch, Losses, Query, SearchGoal, Study

SPACE = {
    "lr": tune.uniform(0, 1),
    "kind": tune.choice([{"n": tune.randint(0, 9)}, "none"]),
    "k": 3,
}
MATH = Framework(title="Counting", module="math", extra="counting")


class Counting(Study):
    """Answers at random from the seed of the question, and records its calls."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.heard: list[tuple[Any, ...]] = []

    def ask(self, query: Query) -> Assignment | str | None:
        answer = self.parameters.complete({}, random.Random(query.seed))
        self.heard.append(("took", query.number, dict(answer)))
        return answer

    def take(self, query: Query, assignment: Assignment) -> None:
        self.heard.append(("took", query.number, dict(assignment)))

    def saw(self, query: Query, step: int, losses: Losses) -> None:
        self.heard.append(("saw", query.number, step, losses))

    def tell(self, query: Query, assignment: Assignment, losses: Losses | None) -> None:
        self.heard.append(("told", query.number, losses))


class CountingSearch(LibrarySearch):
    library: ClassVar[Framework] = MATH

    def open_study(self, parameters: Any, goal: SearchGoal, seed: int) -> Study:
        self.study = Counting(parameters)
        return self.study


def opened(search: CountingSearch, space: Any = SPACE, **goal: Any) -> CountingSearch:
    goal = {"metric": "loss", "mode": "min", **goal}
    search.set_search_properties(goal["metric"], goal["mode"], space, seed=11)
    return search


def row(loss: Any, step: int = 1) -> dict[str, Any]:
    return {"loss": loss, "training_iteration": step}


def test_a_restored_search_that_replays_its_history_continues_as_if_nothing_had_happened() -> None:
    first = opened(CountingSearch(points_to_evaluate=[{"kind": "none"}]))
    second = pickle.loads(pickle.dumps(first))
    opened(second)
    configs = [first.suggest(f"t{i}") for i in range(3)]
    for search in (first, second):
        if search is second:
            for i, config in enumerate(configs):
                assert isinstance(config, dict)
                search.recall(f"t{i}", config)
        search.on_trial_result("t0", row(0.5))
        search.on_trial_complete("t0", row(0.5))
        search.on_trial_complete("t1", None, error=True)
    assert second.study.heard == first.study.heard
    assert second.suggest("t3") == first.suggest("t3")


def test_points_come_first_and_what_they_leave_out_is_drawn() -> None:
    search = opened(
        CountingSearch(points_to_evaluate=[{"lr": 0.25, "kind": {"n": 4}}, {"lr": 0.5}])
    )
    first, second, third = (search.suggest(f"t{i}") for i in range(3))
    assert first == {"lr": 0.25, "kind": {"n": 4}}
    assert isinstance(second, dict)
    assert second["lr"] == 0.5
    assert isinstance(third, dict)
    assert third["lr"] not in (0.25, 0.5)


def test_points_with_rewards_are_learned_and_not_run() -> None:
    points = [{"lr": 0.25, "kind": "none"}, {"lr": 0.5, "kind": {"n": 1}}]
    search = CountingSearch(points_to_evaluate=points, evaluated_rewards=[3, math.nan], mode="max")
    search.add_evaluated_point({"lr": 1, "kind": "none", "k": 3}, 8.0, intermediate_values=[7])
    opened(search)
    assert search.study.heard == [
        ("took", 0, {"lr": 0.25, "kind": 1}),
        ("told", 0, (-3.0,)),
        ("took", 1, {"lr": 0.5, "kind": 0, "kind:0/n": 1}),
        ("told", 1, None),
        ("took", 2, {"lr": 1.0, "kind": 1}),
        ("saw", 2, 1, (-7.0,)),
        ("told", 2, (-8.0,)),
    ]
    assert search.suggest("t0") not in points


def test_intermediate_values_of_several_metrics_are_refused_before_the_first_trial() -> None:
    class CountingMany(CountingSearch):
        takes_many_metrics = True

    search = CountingMany(metric=["a", "b"], mode=["min", "max"])
    search.add_evaluated_point({"lr": 1, "kind": "none"}, [8, 9], intermediate_values=[7])
    with pytest.raises(InvalidConfig, match=r"intermediate_values of a, b: leave them out"):
        opened(search)


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "high", True])
def test_a_last_report_without_a_finite_metric_is_reported_as_a_failure(value: Any) -> None:
    search = opened(CountingSearch())
    search.suggest("t0")
    search.on_trial_result("t0", row(1.0))
    search.on_trial_result("t0", row(value, 2))
    search.on_trial_complete("t0", row(value, 2))
    assert search.study.heard[1:] == [("saw", 0, 1, (1.0,)), ("told", 0, None)]


def test_a_metric_that_no_one_reports_is_named_at_the_first_end_of_a_trial() -> None:
    search = opened(CountingSearch(metric="lost"))
    search.suggest("t0")
    search.on_trial_complete("t0", None, error=True)
    search.suggest("t1")
    with pytest.raises(InvalidConfig, match=r"searches by 'lost'.*Did you mean 'loss'\?"):
        search.on_trial_complete("t1", row(1))


def test_the_end_of_a_trial_that_it_does_not_know_is_skipped() -> None:
    search = opened(CountingSearch())
    search.on_trial_complete("stranger", row(1))
    assert search.study.heard == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"mode": "best"}, "mode must be 'min' or 'max', not 'best'"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"evaluated_rewards": [1]}, "it has 1 for 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused_at_once(given: Any, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        CountingSearch(**given)


@pytest.mark.parametrize(
    ("search", "goal", "told"),
    [
        (CountingSearch(), {"metric": None}, "needs a metric to optimize"),
        (CountingSearch(metric="loss"), {"mode": None}, "needs a metric to optimize"),
        (CountingSearch(metric=["a", "b"]), {}, "one mode for each metric"),
        (CountingSearch(metric=["a", "b"], mode=["min", "max"]), {}, "optimizes one metric"),
        (CountingSearch(points_to_evaluate=[{"x": 1}]), {}, r"points_to_evaluate\[0\]: x is not"),
    ],
)
def test_what_is_known_only_with_the_tuner_is_refused_then(
    search: CountingSearch, goal: Any, told: str
) -> None:
    with pytest.raises((InvalidConfig, InvalidSearchSpace), match=told):
        opened(search, **goal)


def test_what_was_suggested_from_another_space_reaches_no_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    search = opened(CountingSearch(), {**SPACE, "new": tune.uniform(0, 1)})
    search.recall("t0", {"lr": 0.5, "kind": "none"})
    search.recall("t1", {"lr": 7.0, "kind": "none", "new": 0.5})
    search.recall("t2", {"lr": 0.5, "kind": "none", "new": 0.5})
    search.on_trial_complete("t0", row(1))
    assert search.study.heard == [("took", 2, {"lr": 0.5, "kind": 1, "new": 0.5})]
    assert "new: the search of trial t0 returned no value for it" in caplog.text
    assert "trial t1: lr: 7.0 is not in uniform" in caplog.text


def test_a_space_of_its_own_is_searched_in_place_of_the_tuners() -> None:
    class Thing:
        """A user's object without equality."""

    own = {"x": tune.choice([Thing(), Thing()]), "y": tune.uniform(0, 1)}
    search = CountingSearch(space=own, metric="loss", mode="min")
    assert search.set_search_properties(None, None, {"k": 3}) is False
    config = search.suggest("t0")
    assert isinstance(config, dict)
    assert isinstance(config["x"], Thing)


def test_a_library_that_is_missing_is_reported_with_its_package() -> None:
    class Absent(CountingSearch):
        library = Framework(title="Nowhere", module="nowhere_to_be_found", extra="nowhere")

    with pytest.raises(
        ImportError, match="Nowhere is not installed: pip install nowhere_to_be_found"
    ):
        Absent()


def test_a_restore_where_the_library_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = pickle.loads(pickle.dumps(CountingSearch()))
    lacking = Framework(title="Counting", module="holdfast_has_no_such", extra="counting")
    monkeypatch.setattr(CountingSearch, "library", lacking)
    with pytest.raises(ImportError, match="pip install holdfast_has_no_such"):
        opened(search)


def test_a_space_of_its_own_keeps_its_fixed_values() -> None:
    search = CountingSearch(SPACE | {"net": {"depth": 2, "width": tune.randint(1, 9)}})
    search.set_search_properties("loss", "min", {}, seed=1)
    config = search.suggest("t0")
    assert isinstance(config, dict)
    assert config["k"] == 3
    assert config["net"]["depth"] == 2
    assert config.keys() == {"lr", "kind", "k", "net"}


class Uniform:
    """In place of an expression of the library."""

    __module__ = "math.expressions"


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(
    ("space", "name"),
    [
        ({"a": Uniform(), "lr": tune.uniform(0, 1)}, "a"),
        ({"a": tune.choice([{"b": [Uniform()]}, 1])}, "a/0/b/0"),
    ],
)
def test_an_expression_of_the_library_is_refused_rather_than_skipped(
    space: dict[str, Any], name: str, is_own: bool
) -> None:
    search = CountingSearch(space if is_own else None)
    with pytest.raises(InvalidSearchSpace, match=f"^{name} is a Uniform of Counting: Co"):
        search.set_search_properties("loss", "min", {} if is_own else space, seed=1)
